/*
 * cli.h - shared by the commands of dpbench: their table, their programs, their arguments, and the
 * way from an experiment to its result. A command returns the exit code.
 */
#ifndef DPB_CORE_CLI_CLI_H
#define DPB_CORE_CLI_CLI_H

#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/config.h"
#include "cli/sweep_options.h"
#include "launch/launch.h"
#include "launch/party.h"
#include "plan/experiment.h"
#include "plugin/plugins.h"
#include "record/result_file.h"

struct dpb_command {
    const char *name, *usage, *summary;
};

/* All commands of dpbench, as `dpbench help` lists them; ended by name = NULL. */
extern const struct dpb_command dpb_commands[];
const struct dpb_command *dpb_command_find(const char *name); /* NULL: none */

typedef int dpb_command_function(const struct dpb_command *self, int argc,
                                 char **argv); /* argv[0]: the name */

/* ---- programs: start.c and programs.c ------------------------------------------------------- */

/*
 * Commands are programs: dpbench has some itself, and becomes (execv) the program dpbench-NAME for
 * any other NAME. A program of ours gets the words of the command line as they are, so that a
 * result says how dpbench was called; it may be called by its own name, too. A user's program gets
 * the words from NAME on.
 */
struct dpb_program {
    const struct dpb_program_command {
        const char *name;
        dpb_command_function *run;
    } * commands;                                                  /* ended by name = NULL */
    dpb_status (*network_rank)(struct dpb_experiment *experiment); /* NULL: it starts none */
};

/* The whole process, from closed streams to the exit code: as a user's command, or as a rank. */
extern int64_t dpb_program_began_ns; /* dpb_now_ns at its begin */
int dpb_program_main(const struct dpb_program *program, int argc, char **argv);

/* The main of a program with one command. */
#define DPB_PROGRAM(NAME, RUN)                                                            \
    int main(int argc, char **argv)                                                       \
    {                                                                                     \
        static const struct dpb_program_command commands[] = {{NAME, RUN}, {0}};          \
        return dpb_program_main(&(struct dpb_program){.commands = commands}, argc, argv); \
    }

/* The file of dpbench-NAME: beside dpbench, in libexec/dpbench, or in PATH. */
bool dpb_program_find(const char *name, char path[PATH_MAX]);
/* Whether the name is none of our programs'. */
bool dpb_program_is_users(const char *name);
/* Lists the user's programs for `dpbench help`. */
void dpb_programs_print(FILE *out);
/* The words of this process's command line, for dpb_program_become. @borrowed. */
void dpb_program_words(char **words);
/* Becomes dpbench-NAME with those words. Returns the exit code if there is no such program. */
int dpb_program_become(const char *name);
int dpb_program_become_users(const char *path, char **words); /* words[0]: the name */
int dpb_program_become_itself(char **words);
/* The file of the program dpbench of this build. DPB_FAILED: it is gone. */
dpb_status dpb_program_itself(char path[PATH_MAX]);

/* ---- the commands that dpbench has itself --------------------------------------------------- */

dpb_command_function dpb_command_run;
dpb_command_function dpb_command_check;
dpb_command_function dpb_command_data;
dpb_command_function dpb_command_comm;
dpb_command_function dpb_command_list;
dpb_command_function dpb_command_plugins;
dpb_command_function dpb_command_help;

/* Writes the message and one line of usage; returns DPB_USAGE. */
dpb_status dpb_usage_error(const struct dpb_command *command, const char *format, ...)
    DPB_PRINTF(2, 3);

/* The same for a word that is none of the command's options. */
dpb_status dpb_unknown_option(const struct dpb_command *command, const char *word);

/* The option or command that takes a file of this name (".ini": -c, ".json": rerun); NULL:
 * unknown. */
const char *dpb_missing_option(const char *word);

/* The directory of this name ("conf", "templates") that came with dpbench: beside the
 * installed program, or in dpbench's own tree. */
dpb_status dpb_shared_directory(const char *name, char directory[PATH_MAX]);
/* The same without a message. False: it is not there; `tried`: the places. */
bool dpb_shared_find(const char *name, char directory[PATH_MAX], char *tried, size_t size);
/* Its experiments whose names match the pattern, at least one; globfree them. */
dpb_status dpb_experiments_find(const char *pattern, glob_t *files);
/* The whole of a file of text, to be freed; DPB_IO: it cannot be read, or is empty. */
dpb_status dpb_shared_read(const char *path, char **text);

/* A command that measures in its own process ends early on SIGINT and SIGTERM. A second signal
 * that counts (dpb_signals_interrupts) ends the process, which may be stuck. */
extern volatile sig_atomic_t dpb_stop_signal; /* 0: none came */
void dpb_stop_on_signals(void);
int dpb_stop_exit_code(dpb_status status);
const char *dpb_stop_error(dpb_status status); /* for the result; NULL: none */

/* The exit code if both apply: signals first, then 2, 1, 3, 5, 4, 6, 0. */
int dpb_exit_code_first(int a, int b);

/* ---- arguments: NAME | -c FILE.ini [SECTION.KEY=VALUE ...] [--json] [--output FILE] -------- */

enum dpb_accepts {                         /* beside SECTION.KEY=VALUE */
                   DPB_ACCEPTS_CONFIG = 1, /* -c FILE or NAME, required */
                   DPB_ACCEPTS_SERIES = 2, /* --jsonl, --least, --most */
                   DPB_ACCEPTS_OUTPUT = 4, /* --json, --output FILE */
                   DPB_CONFIG_OPTIONAL = 8 /* beside DPB_ACCEPTS_CONFIG: settings alone will do */
};

struct dpb_arguments {
    struct dpb_config *config; /* @owned: the file's settings, overridden by the command line */
    struct dpb_config *given;  /* @owned: the command line's settings alone */
    const char *file;          /* -c FILE or RESULT.json; or `found` */
    char *found;               /* @owned: the file of an experiment that was named */
    const char *output;        /* NULL: a new file in run.results */
    bool json, jsonl;
    json_t *demands;         /* @owned: record/demands.h; NULL: none */
    bool trust;              /* a rerun may write where its result says */
    bool resume;             /* only the missing runs of the sweep RESULT.json */
    json_t *document;        /* @owned: RESULT.json */
    json_t *cell;            /* @owned: the request of a sweep (cell.h); NULL: a user's command */
    struct dpb_party *party; /* @borrowed; NULL: dpbench starts all ranks */
    dpb_dump_document *dump; /* of the document that is delivered; NULL: as it is */
};

/* Reads the RESULT.json of a command line into `config` and `document`. */
struct dpb_arguments;
typedef dpb_status dpb_read_result(const char *path, struct dpb_arguments *arguments);

/* `read`: the command takes a RESULT.json; NULL: it takes none. */
dpb_status dpb_arguments_parse(const struct dpb_command *command, unsigned accepts,
                               dpb_read_result *read, int argc, char **argv,
                               struct dpb_arguments *arguments);
/* --json or --output FILE at argv[*i], and those of DPB_ACCEPTS_SERIES; refuses others. */
dpb_status dpb_arguments_take_form(const struct dpb_command *command, unsigned accepts, int argc,
                                   char **argv, int *i, struct dpb_arguments *arguments);
/* The files of a command line, for dpb_experiment_probe and dpb_outputs_apart: -c, --output. */
enum { DPB_ARGUMENTS_FILES = 2 };
void dpb_arguments_files(const struct dpb_arguments *arguments,
                         struct dpb_named_file files[DPB_ARGUMENTS_FILES]);
void dpb_arguments_release(struct dpb_arguments *arguments);

/* ---- under mpirun and srun: together.c ------------------------------------------------------- */

/* Runs a command that starts jobs. Under mpirun or srun this process first joins the others, and
 * the launcher sets the numbers of workers and machines (origin `launcher`). All parts agree on a
 * failure. */
int dpb_together(const struct dpb_command *self, unsigned accepts, dpb_read_result *read, int argc,
                 char **argv, int (*run)(struct dpb_arguments *arguments));
/* Agrees whether the job begins: in all parts or in none. `status` is this part's own; unless it is
 * DPB_OK, `experiment` may be NULL. *exit_code is set if the job does not begin. */
dpb_status dpb_together_agree(const struct dpb_arguments *arguments, dpb_status status,
                              const struct dpb_experiment *experiment, int *exit_code);

/* ---- running ------------------------------------------------------------------------------- */

struct dpb_execution {
    dpb_status status;
    int exit_code;
    json_t *result; /* @owned; NULL: see dpb_execute_job */
};

typedef dpb_status dpb_make_experiment(struct dpb_config *config,
                                       struct dpb_experiment **experiment);
typedef int dpb_run_experiment(struct dpb_experiment *experiment,
                               const struct dpb_arguments *arguments);
/* For a command whose document goes to --output alone: makes the experiment and, if all parts agree
 * that the job begins, runs `run`, which returns the exit code. */
int dpb_measure(const struct dpb_arguments *arguments, dpb_make_experiment *make,
                dpb_run_experiment *run);
/* The same from the command line, for a command that joins no other part of a job. */
int dpb_command_alone(const struct dpb_command *self, int argc, char **argv,
                      dpb_make_experiment *make, dpb_run_experiment *run);

/* The data shown of a running job. */
struct dpb_live_place {
    const char *label;
    /* In a sweep: the seconds of the runs that have ended, their number, and the number left. */
    double ended_s;
    uint64_t n_ended, n_left;
    size_t journal_bytes; /* of a rank; 0: those of a run */
    int orders;           /* of a sweep in turns: launch/turns.h; 0: none */
};

/* Runs the experiment's ranks to their end; dpb_launch describes the outcome. No board: the job did
 * not start, or this part is not the head, and makes no document. */
void dpb_execute_job(const struct dpb_experiment *experiment, struct dpb_party *party,
                     const struct dpb_live_place *place, struct dpb_job_outcome *outcome);
/* Runs one job, from its experiment to its result. `execution` has all errors. */
void dpb_execute(const struct dpb_experiment *experiment, struct dpb_party *party,
                 const struct dpb_live_place *place, struct dpb_execution *execution);

/* Before a run: tries a device that is not dpbench's own on the run's model, by the program
 * dpbench-conform, in 0.1 to some seconds. DPB_VERIFICATION: it does not conform. *verdict is that
 * of verification.device in the result, also after a failure. */
dpb_status dpb_conform_before(const struct dpb_experiment *experiment, const char **verdict);

/* Runs the arguments' run; writes and prints its document. */
int dpb_run_single(const struct dpb_arguments *arguments);
/* Measures the data of the arguments' experiment: `dpbench data`. */
int dpb_data_measure(const struct dpb_arguments *arguments);

typedef void dpb_print_document(const json_t *document, FILE *out);
/* Prints a table, or JSON. */
void dpb_document_print(const json_t *document, bool json, dpb_print_document *print);
/* Writes the document to `output` or into `results`, prints a table, JSON or JSON lines, and judges
 * the demands unless the measurement failed. Returns the exit code. */
int dpb_document_deliver(const json_t *document, const struct dpb_arguments *arguments,
                         const char *results, const char *run_name, dpb_print_document *print);
/* Sets world.launcher of a document (NULL: none) of several parts; NULL: there is no other part. */
void dpb_document_set_launcher(json_t *document, const struct dpb_party *party);
/* The same at the end of a command with exit code `code`, for the document of its measurements,
 * which this releases; NULL: out of memory. Wrong input leaves no file. */
int dpb_measured_deliver(json_t *document, int code, const struct dpb_arguments *arguments,
                         const char *results, const char *run_name, dpb_print_document *print);

#endif
