/*
 * output.h - a file that is complete or not there: it is written under another name beside its
 * place, synced, and only then gets its name. An older file stays whole until then, and keeps its
 * mode. A link stays a link: the file that it names is replaced. A descriptor of this process
 * (/dev/stdout, /dev/fd/63 of a shell's process substitution) is written into, never replaced.
 */
#ifndef DPB_CORE_BASE_OUTPUT_H
#define DPB_CORE_BASE_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpbench/status.h"

struct dpb_output {
    int fd;
    char given[PATH_MAX];     /* for messages */
    char path[PATH_MAX];      /* the place; links are resolved */
    char temporary[PATH_MAX]; /* "PLACE.PID.tmp"; "": fd is a descriptor's copy */
};

/* DPB_USAGE, naming `what` ("--output"), if `path` names a directory, or what is neither a regular
 * file nor a descriptor. */
dpb_status dpb_output_check(const char *what, const char *path);
/* The real place of `path`, which need not exist: links resolved, from "/" on. False: errno. */
bool dpb_output_place(const char *path, char place[PATH_MAX]);
/* Whether it is a descriptor of this process. */
bool dpb_output_is_descriptor(const char *path);
/* The directory of a path: "." for a bare name. */
void dpb_output_directory(const char *path, char directory[PATH_MAX]);

/* A file by the name of the option that names it. */
struct dpb_named_file {
    const char *option, *path; /* path NULL or "": none */
    bool written;
};
/* DPB_USAGE, naming both, if one that is written is also read, or written for another option. */
dpb_status dpb_outputs_apart(const struct dpb_named_file *files, size_t n);

/* DPB_IO with the reason. */
dpb_status dpb_output_open(const char *path, struct dpb_output *output);
/* Writes, or drops the file and returns DPB_IO. */
dpb_status dpb_output_add(struct dpb_output *output, const void *bytes, size_t n);
/* Syncs the file and gives it its name, then syncs the directory. Closes it either way. What cannot
 * get its name is kept, and the message names it. */
dpb_status dpb_output_keep(struct dpb_output *output);
/* The same, but replaces nothing: `name` is taken if it is free. *taken: it was not; the file is
 * there still, for another name. */
dpb_status dpb_output_keep_new(struct dpb_output *output, const char *name, bool *taken);
/* Removes the file, which is not whole. After keep it does nothing. */
void dpb_output_drop(struct dpb_output *output);

/* All of it. */
dpb_status dpb_output_write(const char *path, const char *text, size_t length);

#endif
