"""The steps of ``parsers.recognise``: what a path says, whether content is text, a document, or lines of a source."""
