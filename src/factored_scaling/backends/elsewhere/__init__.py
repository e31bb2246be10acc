"""Programs that run in other people's environments. They stand alone, in a folder of their own.

Python looks for modules beside a program first: next to our `lerobot.py`, a program would not find LeRobot.
"""
