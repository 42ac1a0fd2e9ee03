"""Tables, plots and pages made from results/*.json."""
