"""One phase of pretraining: prepare, run, finish, and what it reads and measures."""
