/*
 * shared_first.cc - linked before the kernels, as shared_last.cc is behind them: between the two
 * lie the kernels' variables, which are their shared memory.
 */
char stand_in_shared_first;
