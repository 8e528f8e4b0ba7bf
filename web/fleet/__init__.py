"""The fleet: every node at one moment, by place and coloured by one measure. The API's document is what the page draws."""
