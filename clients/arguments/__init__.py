"""What programs hand to the clients, checked where they hand it over."""
