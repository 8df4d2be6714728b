/*
 * command.h - runs dpbench (or any program) as a user would, in a child process with a deadline,
 * and gives back what it said.
 */
#ifndef DPB_TESTS_LIB_COMMAND_H
#define DPB_TESTS_LIB_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lib/own.h"

/* A list of words, ended by NULL. */
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

struct command {
    int exit_code; /* -1: ended by a signal */
    int signal_number;
    bool late; /* killed at the deadline, which comes the later, the more processes take turns */
    double seconds;
    /* The test's own (test.h): they are freed as it ends. */
    char *out, *err; /* text, never NULL */
    json_t *json;    /* of stdout, where it is one JSON document; else NULL */
};

/* The build directory: $DPB_BUILD, else "build". */
const char *build_directory(void);

/* Runs `arguments` (ended by NULL; [0] is the program) to its end or the deadline. `environment`:
 * NAME=VALUE to add, ended by NULL; may be NULL. */
void command_run(struct command *command, double deadline_s, const char *const *arguments,
                 const char *const *environment);
/* dpbench with a line of arguments, cut at blanks: printf-like. A results directory of the test's
 * own is part of the arguments the caller gives. */
void dpbench(struct command *command, double deadline_s, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same; fails the test with what it said unless it ends with that exit code. */
void dpbench_ends(struct command *command, double deadline_s, int exit_code, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));
/* The same for its messages alone: they, on stderr, have all of the words, ended by NULL. */
void dpbench_says(double deadline_s, int exit_code, const char *const *words, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));
/* Before the test ends: for many or large ones. */
void command_free(struct command *command);
/* A number of its JSON document; fails the test where there is none. */
double expect_number(const struct command *command, const char *path);

/* Starts without waiting, in a process group of its own; command_finish collects it. */
struct started {
    pid_t pid;
    int out, err;
    double began_s;
};
void command_start(struct started *started, const char *const *arguments,
                   const char *const *environment);
/* With a line of arguments, cut at blanks: printf-like. The program is dpbench, or the line's first
 * word. */
void dpbench_start(struct started *started, const char *const *environment, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void line_start(struct started *started, const char *const *environment, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void command_finish(struct started *started, struct command *command, double deadline_s);

/* Sends a signal and waits until it is taken: of two that are pending, one is lost. */
void signal_process(pid_t pid, int number);

/* A value in a document by path: "timing.samples_per_s.mean", "runs.0.loss.3". NULL: not there. */
json_t *json_at(const json_t *document, const char *path);
double json_number_at(const json_t *document, const char *path);    /* NaN: not there */
const char *json_text_at(const json_t *document, const char *path); /* "": not there */

/* A new empty directory under $TMPDIR or /tmp, and its removal with all that is in it. */
void temporary_directory(char path[64]);
void remove_directory(const char *path);
/* cmocka's group fixtures: a directory that is there until the program ends. */
extern char own_directory[64];
int own_directory_setup(void **state);
int own_directory_teardown(void **state);
/* Writes a file; fails the test when it cannot. */
void write_file(const char *path, const void *bytes, size_t length);
/* The text file ROOT/NAME, printf-like; makes the directories between: a made-up /proc or /sys. */
void write_below(const char *root, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

double now_s(void);

#endif
