"""Users' mistakes: found before they do harm, or explained when fairseq fails over them."""
