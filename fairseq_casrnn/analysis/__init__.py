"""What models learnt: pictures, measurements of states and gates."""
