/*
 * file.h - a complete write to files of all kinds; files in memory; whose standard output is; how
 * many files may be open; where dpbench is.
 */
#ifndef DPB_CORE_BASE_FILE_H
#define DPB_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all bytes to a file or a blocking socket. False: see errno. dpbench ignores SIGPIPE, so a
 * closed socket is an error, too. */
bool dpb_write_all(int fd, const void *bytes, size_t n);

/* A file in memory, of a size that nobody can change under its readers; -1: see errno. */
int dpb_memory_file(const char *name, size_t bytes);

/* From here on what libraries and plugins print goes to standard error: one line of theirs on
 * standard output would spoil a document there. The main thread, in pairs or not; nothing to do is
 * fine. Programs executed meanwhile need `back` first. */
void dpb_stdout_aside(void);
/* What was printed meanwhile, buffers too, is on standard error; documents follow. */
void dpb_stdout_back(void);

/* Raises the number of files that this process may open, to `n` beside DPB_FILES_OWN others: the
 * limit in many shells is below the limit that a process may set. A later failure reports a
 * shortage that remains. */
enum { DPB_FILES_OWN = 64 };
void dpb_files_allow(size_t n);

/* The directory of dpbench: that of this program's file, or, where this is a command in
 * PREFIX/libexec/dpbench, PREFIX/bin. False: the path is longer than `size`, or /proc is not
 * mounted. */
bool dpb_own_directory(char *directory, size_t size);
/* The file of dpbench: this program's own, or, where this is a command (dpbench-NAME), that in
 * dpbench's directory, which may be missing. */
bool dpb_own_program(char *path, size_t size);

#endif
