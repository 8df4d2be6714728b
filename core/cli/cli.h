/*
 * cli.h - shared by the commands of dpbench: their table, their arguments, and the way from an
 * experiment to its result. Only main calls exit; a command returns the exit code.
 */
#ifndef DPB_CORE_CLI_CLI_H
#define DPB_CORE_CLI_CLI_H

#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"
#include "launch/launch.h"
#include "launch/party.h"
#include "plugin/plugins.h"
#include "study/sweep/sweep.h"
#include "plan/experiment.h"

struct dpb_command {
    const char *name, *usage, *summary;
    int (*run)(const struct dpb_command *self, int argc, char **argv); /* argv[0]: the name */
};

int dpb_command_run(const struct dpb_command *self, int argc, char **argv);
int dpb_command_tune(const struct dpb_command *self, int argc, char **argv);
int dpb_command_rerun(const struct dpb_command *self, int argc, char **argv);
int dpb_command_report(const struct dpb_command *self, int argc, char **argv);
int dpb_command_compare(const struct dpb_command *self, int argc, char **argv);
int dpb_command_gate(const struct dpb_command *self, int argc, char **argv);
int dpb_command_check(const struct dpb_command *self, int argc, char **argv);
int dpb_command_predict(const struct dpb_command *self, int argc, char **argv);
int dpb_command_eval(const struct dpb_command *self, int argc, char **argv);
int dpb_command_data(const struct dpb_command *self, int argc, char **argv);
int dpb_command_comm(const struct dpb_command *self, int argc, char **argv);
int dpb_command_links(const struct dpb_command *self, int argc, char **argv);
/* `dpbench links network` of several machines: argv[0] is "network". */
int dpb_command_links_network(const struct dpb_command *self, int argc, char **argv);
int dpb_command_watch(const struct dpb_command *self, int argc, char **argv);
int dpb_command_list(const struct dpb_command *self, int argc, char **argv);
int dpb_command_new(const struct dpb_command *self, int argc, char **argv);
int dpb_command_conform(const struct dpb_command *self, int argc, char **argv);
int dpb_command_plugins(const struct dpb_command *self, int argc, char **argv);
/* `help` knows all commands. */
int dpb_command_help(const struct dpb_command *self, const struct dpb_command *commands,
                     size_t n_commands, int argc, char **argv);

/* Writes the message and one line of usage; returns DPB_USAGE. */
dpb_status dpb_usage_error(const struct dpb_command *command, const char *format, ...)
    DPB_PRINTF(2, 3);

/* The option or command that takes a file of this name (".ini": -c, ".json": rerun); NULL:
 * unknown. */
const char *dpb_missing_option(const char *word);

/* The directory of this name ("conf", "templates") that came with dpbench: beside the
 * installed program, or in dpbench's own tree. */
dpb_status dpb_shared_directory(const char *name, char directory[PATH_MAX]);
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

/* The argument of --threshold, "5" or "5%", as a share. */
dpb_status dpb_parse_threshold(const struct dpb_command *self, const char *text, double *share);

/* The exit code if both apply: signals first, then 2, 1, 3, 5, 4, 0. */
int dpb_exit_code_first(int a, int b);

/* ---- arguments: NAME | -c FILE.ini [SECTION.KEY=VALUE ...] [--json] [--output FILE] -------- */

enum dpb_accepts {                         /* beside SECTION.KEY=VALUE */
                   DPB_ACCEPTS_CONFIG = 1, /* -c FILE or NAME, required */
                   DPB_ACCEPTS_RESULT = 2, /* RESULT.json, required */
                   DPB_ACCEPTS_OUTPUT = 4, /* --json, --output FILE */
                   DPB_CONFIG_OPTIONAL = 8 /* beside DPB_ACCEPTS_CONFIG: settings alone will do */
};

struct dpb_arguments {
    struct dpb_config *config; /* @owned: the file's settings, overridden by the command line */
    struct dpb_config *given;  /* @owned: the command line's settings alone */
    const char *file;          /* -c FILE or RESULT.json; or `found` */
    char *found;               /* @owned: the file of an experiment that was named */
    const char *output;        /* NULL: a new file in run.results */
    bool json;
    bool trust;              /* a rerun may write where its result says */
    bool resume;             /* only the missing runs of the sweep RESULT.json */
    json_t *document;        /* @owned: RESULT.json */
    struct dpb_party *party; /* @borrowed; NULL: not under mpirun or srun */
};

dpb_status dpb_arguments_parse(const struct dpb_command *command, unsigned accepts, int argc,
                               char **argv, struct dpb_arguments *arguments);
/* --json or --output FILE at argv[*i]; refuses any other option. */
dpb_status dpb_arguments_take_form(const struct dpb_command *command, int argc, char **argv, int *i,
                                   struct dpb_arguments *arguments);
void dpb_arguments_release(struct dpb_arguments *arguments);

/* ---- under mpirun and srun: together.c ------------------------------------------------------- */

/* Runs a command that starts jobs. Under mpirun or srun this process first joins the others, and
 * the launcher sets the numbers of workers and machines (origin `launcher`). All parts agree on a
 * failure. */
int dpb_together(const struct dpb_command *self, unsigned accepts, int argc, char **argv,
                 int (*run)(struct dpb_arguments *arguments));
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
};

/* Runs the experiment's ranks to their end; dpb_launch describes the outcome. No board: the job did
 * not start, or this part is not the head, and makes no document. */
void dpb_execute_job(const struct dpb_experiment *experiment, struct dpb_party *party,
                     const struct dpb_live_place *place, struct dpb_job_outcome *outcome);
/* Runs one job, from its experiment to its result. `execution` has all errors. */
void dpb_execute(const struct dpb_experiment *experiment, struct dpb_party *party,
                 const struct dpb_live_place *place, struct dpb_execution *execution);

/* Runs the arguments' run, sweep or search; writes and prints its document. */
int dpb_run_arguments(struct dpb_arguments *arguments);

typedef void dpb_print_document(const json_t *document, FILE *out);
/* Prints a table, or JSON. */
void dpb_document_print(const json_t *document, bool json, dpb_print_document *print);
/* Writes the document to `output` or into `results`, and prints a table or JSON. Returns the exit
 * code. */
int dpb_document_deliver(const json_t *document, const struct dpb_arguments *arguments,
                         const char *results, const char *run_name, dpb_print_document *print);
/* The same at the end of a command with exit code `code`, for the document of its measurements,
 * which this releases; NULL: out of memory. Wrong input leaves no file. */
int dpb_measured_deliver(json_t *document, int code, const struct dpb_arguments *arguments,
                         const char *results, const char *run_name, dpb_print_document *print);

/* ---- other programs: launched.c ------------------------------------------------------------ */

/* A program that prints a document of dpbench. */
struct dpb_child {
    const char *program; /* its path */
    const char *const *words;
    const char *without; /* a variable to remove from its environment; NULL: none */
    int64_t limit_ns;    /* to its end; 0: none */
    /* A launcher: it may never end after its document, so it gets 10 s. SIGINT is passed on as
     * SIGTERM, since srun needs SIGINT twice. */
    bool lingers;
};

struct dpb_child_end {
    int code;          /* 128 + N: it was killed by signal N */
    int signal_number; /* a signal to this process meanwhile, passed on; 0: none */
    bool late;         /* it was ended, at the limit or after the document */
    bool whole;        /* if it lingers: the document is whole */
    char *out, *err;   /* @owned: dpb_child_release; ended by NUL */
    size_t out_bytes, err_bytes;
};

/* Runs the program to its end, in a process group of its own and with no input. The program is
 * ended when this process ends. *end is filled if the status is DPB_OK; release it in any case. */
dpb_status dpb_child_run(const struct dpb_child *child, struct dpb_child_end *end);
void dpb_child_release(struct dpb_child_end *end);

/* Refuses (DPB_USAGE) a program of sweep.launch that is not there. */
dpb_status dpb_launched_probe(const struct dpb_sweep *sweep);
/* dpb_execute for a cell of such a sweep. */
void dpb_execute_launched(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                          struct dpb_execution *execution);
/* "; by mpirun -np 4", for people; nothing without sweep.launch. */
void dpb_launched_print(const struct dpb_sweep *sweep, const struct dpb_experiment *experiment,
                        FILE *out);

/* cmd_sweep.c: the [sweep] or [tune] of a configuration. */
int dpb_sweep_arguments(const struct dpb_arguments *arguments);

#endif
