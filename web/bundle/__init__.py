"""One incident as one file: a page that opens offline, with its data attached and nothing that it need not say."""
