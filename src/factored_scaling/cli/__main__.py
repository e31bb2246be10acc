from factored_scaling.cli import process

process()
