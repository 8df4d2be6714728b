/*
 * main.c - every process of dpbench begins here: a user's command, or a rank of a job that another
 * dpbench started. The only file that exits.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "train/comm_test.h"
#include "train/network_test.h"
#include "train/rank.h"
#include "world/world.h"

static int run_help(const struct dpb_command *self, int argc, char **argv);

static const struct dpb_command commands[] = {
    {"run", "dpbench [run] -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json] [--output FILE]",
     "run an experiment, or a sweep or search where the file has [sweep] or [tune]",
     dpb_command_run},
    {"tune", "dpbench tune -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json] [--output FILE]",
     "search the best setting: trials of the axes in [tune], as far as each gains",
     dpb_command_tune},
    {"check", "dpbench check -c FILE.ini | NAME [SECTION.KEY=VALUE ...]",
     "validate everything and say how much memory it needs; run nothing", dpb_command_check},
    {"rerun",
     "dpbench rerun RESULT.json [SECTION.KEY=VALUE ... | --resume] [--trust] [--json] [--output "
     "FILE]",
     "repeat the run of a result, or run the rest of a sweep", dpb_command_rerun},
    {"report",
     "dpbench report [--markdown | --csv[=runs | =steps] | --html FILE] [--each] RESULT.json...",
     "print the table of a result again, one table of several, or a page with figures",
     dpb_command_report},
    {"compare",
     "dpbench compare A.json B.json [--threshold PERCENT] [--require-same PARTS] [--json]",
     "two runs, or two sweeps: all that differs, then the rates; exit code 4 where B is slower by "
     "more than PERCENT",
     dpb_command_compare},
    {"gate",
     "dpbench gate --base OLD/dpbench -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--repeats N] "
     "[--threshold PERCENT] [--json] [--output FILE]",
     "run an experiment by turns with another build and with this one; exit code 4 where this one "
     "is slower by more than PERCENT",
     dpb_command_gate},
    {"eval",
     "dpbench eval -c FILE.ini | NAME checkpoint.load=FILE [SECTION.KEY=VALUE ...] [--json] "
     "[--output FILE]",
     "evaluate a saved model on the test set of an experiment; train nothing", dpb_command_eval},
    {"predict",
     "dpbench predict RESULT.json --link RATE,LATENCY | --links LINKS.json | --comm COMM.json "
     "[--workers LIST] [--strategies LIST] [--buckets LIST] [--batches LIST] "
     "[--per-machine N --inside RATE,LATENCY | COMM.json] [--servers N] [--host RATE,TIME] "
     "[--json]",
     "from a run of one worker, the step of many, by strategy, link, bucket and batch",
     dpb_command_predict},
    {"data", "dpbench data -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json] [--output FILE]",
     "measure how fast the data of an experiment come, by data.threads; train nothing",
     dpb_command_data},
    {"comm", "dpbench comm -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json] [--output FILE]",
     "measure an experiment's communicator alone, by size and by the model's buckets; train "
     "nothing",
     dpb_command_comm},
    {"links",
     "dpbench links [topology] [memory] [cores] [loopback] [devices] [--window TIME] "
     "[--max SIZE] [--json] [--output FILE], or dpbench links network [-c FILE.ini | NAME] "
     "[SECTION.KEY=VALUE ...] [--json] [--output FILE]",
     "measure how fast memory, cores, loopback and devices pass bytes on, and how they are "
     "connected; by default all of it. network: between machines, under mpirun or srun",
     dpb_command_links},
    {"watch", "dpbench watch [PID]",
     "show the jobs that run on this machine, or that of one launcher, until they end; without a "
     "terminal once",
     dpb_command_watch},
    {"plugins", "dpbench plugins [--json]",
     "list the plugins that can be loaded, and the others with the reason", dpb_command_plugins},
    {"list", "dpbench list [WORD ...]",
     "list the experiments that come with dpbench, each with its question; only those that mention "
     "all words",
     dpb_command_list},
    {"new", "dpbench new KIND NAME",
     "write a plugin to begin with, its experiment and its Makefile into a new directory",
     dpb_command_new},
    {"conform", "dpbench conform KIND_NAME.so [SECTION.KEY=VALUE ...]",
     "hold a plugin to the conformance suite of its kind; exit code 3 where it fails",
     dpb_command_conform},
    {"help",
     "dpbench help [COMMAND | SECTION | SECTION.KEY | PLUGIN | TERM | models | data | devices | "
     "comm | "
     "codecs | all]",
     "explain commands, options, plugins and terms", run_help},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int run_help(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_command_help(self, commands, N_COMMANDS, argc, argv);
}

static const struct dpb_command *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* Refuses a word that is no command, with a guess of its meaning. */
static dpb_status refuse_command(const struct dpb_command *run, const char *word)
{
    const char *names[N_COMMANDS + 1] = {NULL};
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    const char *hint = dpb_missing_option(word);
    if (hint)
        return dpb_usage_error(run, "'%s' is no command: did you mean '%s %s'?", word, hint, word);
    const char *near = dpb_did_you_mean(word, names);
    if (near)
        return dpb_usage_error(run, "unknown command '%s'; did you mean '%s'?", word, near);
    return dpb_usage_error(run, "unknown command '%s'; an experiment is run by 'run NAME'", word);
}

static dpb_status rank_config(struct dpb_config *config)
{
    json_error_t error;
    json_t *json = json_loads(dpb_world.config, 0, &error);
    if (!json)
        return dpb_fail(DPB_FAILED, "the launcher's configuration cannot be read: %s", error.text);
    dpb_status status = dpb_config_from_json(config, json, "the launcher's configuration");
    json_decref(json);
    return status;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static dpb_status run_rank(struct dpb_experiment *experiment)
{
    switch (experiment->settings.run.mode) {
    case DPB_MODE_COMM:
        return dpb_comm_test_run(experiment);
    case DPB_MODE_NETWORK:
        return dpb_network_test_run(experiment);
    default:
        return dpb_rank_run(experiment);
    }
}

static int rank_main(void)
{
    dpb_status status = dpb_world_open();
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof name, "dpb-rank%" PRIu32, dpb_world.rank);
    pthread_setname_np(pthread_self(), name);
    struct dpb_experiment *experiment = NULL;
    struct dpb_config *config = dpb_config_create();
    status = !config ? DPB_NO_MEMORY : rank_config(config);
    DPB_THEN(status, dpb_experiment_create(config, &experiment));
    DPB_THEN(status, run_rank(experiment));
    dpb_experiment_destroy(experiment);
    dpb_config_destroy(config);
    dpb_world_close();
    return dpb_status_exit_code(status);
}

static int user_main(int argc, char **argv)
{
    const struct dpb_command *run = find_command("run"), *help = find_command("help");
    if (argc < 2) {
        dpb_usage_error(run, "nothing to do: give an experiment or a command");
        return dpb_status_exit_code(DPB_USAGE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dpbench %s\n", DPB_VERSION);
        return 0;
    }
    if (asks_for_help(argv[1]))
        return help->run(help, 1, argv);
    if (argv[1][0] == '-')
        return run->run(run, argc, argv);

    const struct dpb_command *command = find_command(argv[1]);
    if (command && argc == 3 && asks_for_help(argv[2]))
        return help->run(help, 2, (char *[]){argv[2], argv[1], NULL});
    if (command)
        return command->run(command, argc - 1, argv + 1);

    return dpb_status_exit_code(refuse_command(run, argv[1]));
}

/* Messages would be written into the file that took the number of a closed stream. Each stream is
 * opened the wrong way round, so its use still fails. */
static void fill_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    fill_closed_streams();
    /* Makes a full disk, a file-size limit and a closed pipe errors to report, not a process's
     * end. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int code = dpb_world_is_rank() ? rank_main() : user_main(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        dpb_fail(DPB_IO, "standard output cannot be written: %m");
        code = dpb_exit_code_first(code, dpb_status_exit_code(DPB_IO));
    }
    exit(code);
}
