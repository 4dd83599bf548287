"""What the command lines share: arguments, errors, output and progress."""
