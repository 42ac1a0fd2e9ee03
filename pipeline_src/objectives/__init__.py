"""What is learnt: next sentences, and one loss per kind of task. That of words is `models.linear_cross_entropy`."""
