from factored_scaling.cli import main

main()
