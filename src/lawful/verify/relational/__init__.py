"""Two assignments of weights to one program, run beside each other: do they compute one function?"""
