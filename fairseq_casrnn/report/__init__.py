"""``casrnn report``: one page of HTML about a training or several."""
