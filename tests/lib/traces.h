/*
 * traces.h - what a run of dpbench could leave behind on the machine: processes, files in the
 * directory of the test, files of /dev/shm. A socket with an abstract name ends with its process.
 */
#ifndef DPB_TESTS_LIB_TRACES_H
#define DPB_TESTS_LIB_TRACES_H

#include <stdbool.h>
#include <sys/types.h>

/* Orphans of what the test starts become its children: none of them can hide. Once a program. */
void traces_adopt_orphans(void);

/* What is there now. `directory` is looked through with all below it. The running
 * test owns it (test.h). */
struct traces {
    const char *directory;
    char **names;
    size_t n;
};
void traces_take(struct traces *before, const char *directory);

/* Fails the test, naming what and `title`, if a process is left of what it started within `gone_s`,
 * a file that was not there before, or shared memory that was not there and that no process has in
 * its memory. */
void traces_expect_none(const struct traces *before, const char *title, double gone_s);

/* Threads of a process; 0: it is gone. */
size_t traces_threads(pid_t pid);

#endif
