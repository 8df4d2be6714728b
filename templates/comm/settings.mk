# The library of dpbench's own strategies.
PACKAGE = dpbench-comm
