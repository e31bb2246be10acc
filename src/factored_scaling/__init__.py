"""Factored scaling curves: which factor should the next robot demonstrations vary, and how many of each?"""
