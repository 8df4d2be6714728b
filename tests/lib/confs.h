/*
 * confs.h - the experiments of conf/, each put to the test: its comment and the commands in it,
 * what `dpbench check` says of it, and two steps of it. A file that is put there is tested without
 * being named anywhere. Data that the machine may lack are replaced by small ones of the same
 * format. Commands of the comment that make profiles run first. An experiment for GPUs is not run:
 * `check` passes it on a CUDA for tests, or says what is missing.
 */
#ifndef DPB_TESTS_LIB_CONFS_H
#define DPB_TESTS_LIB_CONFS_H

#include <stdbool.h>

/* Runs a cmocka test a file, from the repository's root. `full`: the experiments with heavy
 * networks run, all cells. Otherwise every experiment's commands are checked, and those with light
 * networks run; a sweep runs one cell, or all with DPB_ALL_CELLS. Returns cmocka's result. */
int confs_test(bool full);

#endif
