"""Who may do and see what: rights, visibility, labels, redaction. Every read of every part asks here."""
