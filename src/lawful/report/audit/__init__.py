"""What an audit and the demo show: text, JSON and a page."""
