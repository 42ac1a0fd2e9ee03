"""Files become clean documents."""
