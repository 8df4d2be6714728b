/*
 * start.c - every process of dpbench begins here, in all of its programs: a user's command, or a
 * rank of a job that another process of the same program started; see cli.h.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "bench/comm_test.h"
#include "bench/data_test.h"
#include "cli/cli.h"
#include "loop/rank.h"
#include "machine/neighbour.h"
#include "world/world.h"

/* ---- ranks --------------------------------------------------------------------------------- */

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

static dpb_status run_rank(const struct dpb_program *program, struct dpb_experiment *experiment)
{
    switch (experiment->settings.run.mode) {
    case DPB_MODE_COMM:
        return dpb_comm_test_run(experiment);
    case DPB_MODE_DATA:
        return dpb_data_test_run(experiment);
    case DPB_MODE_NETWORK:
        return program->network_rank ? program->network_rank(experiment)
                                     : dpb_fail(DPB_UNSUPPORTED, "run.mode = network is of "
                                                                 "`dpbench links network` alone");
    default:
        return dpb_rank_run(experiment);
    }
}

static bool rank_returns;

static void *nothing(void *argument)
{
    return argument;
}

/* A library that cannot start a thread prints a line and ends the process, as libgomp does. */
static void say_why_it_exits(void)
{
    pthread_t thread;
    const int error = rank_returns ? 0 : pthread_create(&thread, NULL, nothing, NULL);
    if (error != 0)
        dpb_fail(DPB_FAILED, "a library has ended the process: it cannot start threads: %s",
                 strerror(error));
}

static int rank_main(const struct dpb_program *program)
{
    dpb_status status = dpb_world_open();
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof name, DPB_RANK_NAME "%" PRIu32, dpb_world.rank);
    pthread_setname_np(pthread_self(), name);
    atexit(say_why_it_exits);
    struct dpb_experiment *experiment = NULL;
    struct dpb_config *config = dpb_config_create();
    status = !config ? DPB_NO_MEMORY : rank_config(config);
    DPB_THEN(status, dpb_experiment_create(config, &experiment));
    DPB_THEN(status, run_rank(program, experiment));
    dpb_experiment_destroy(experiment);
    dpb_config_destroy(config);
    dpb_world_close();
    rank_returns = true;
    return dpb_status_exit_code(status);
}

/* ---- commands ------------------------------------------------------------------------------ */

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Refuses a word that is no command, with a guess of its meaning. */
static dpb_status refuse_command(const struct dpb_command *run, const char *word)
{
    const char *hint = dpb_missing_option(word);
    if (hint)
        return dpb_usage_error(run, "'%s' is no command: did you mean '%s %s'?", word, hint, word);
    struct dpb_nearest near = {.word = word};
    for (const struct dpb_command *command = dpb_commands; command->name; command++)
        dpb_nearest_offer(&near, command->name);
    if (near.found)
        return dpb_usage_error(run, "unknown command '%s'; did you mean '%s'?", word, near.found);
    return dpb_usage_error(run, "unknown command '%s'; an experiment is run by 'run NAME'", word);
}

/* argv[0] stands for the command. */
static int run_command(const struct dpb_program *program, const struct dpb_command *command,
                       int argc, char **argv)
{
    for (const struct dpb_program_command *own = program->commands; own->name; own++)
        if (strcmp(own->name, command->name) == 0)
            return own->run(command, argc, argv);
    if (strcmp(command->name, "help") == 0)
        return dpb_program_become_itself(
            (char *[]){argv[0], "help", argc > 1 ? argv[1] : NULL, NULL});
    return dpb_program_become(command->name);
}

/* "tune" of "libexec/dpbench/dpbench-tune"; NULL: the command is a word behind the program. */
static const char *command_of(const char *program)
{
    static const char mark[] = "dpbench-";
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    return dpb_begins_with(name, mark) ? name + sizeof mark - 1 : NULL;
}

static int user_main(const struct dpb_program *program, int argc, char **argv)
{
    const struct dpb_command *run = dpb_command_find("run"), *help = dpb_command_find("help");
    const char *own = argc > 0 ? command_of(argv[0]) : NULL;
    char users[PATH_MAX];
    dpb_program_words(argv);
    dpb_plugins_detach();
    if (own) {
        const struct dpb_command *command = dpb_command_find(own);
        if (command && argc == 2 && asks_for_help(argv[1]))
            return run_command(program, help, 2, (char *[]){argv[1], (char *)(uintptr_t)own, NULL});
        return run_command(program, command ? command : run, argc, argv);
    }
    if (argc < 2) {
        dpb_usage_error(run, "nothing to do: give an experiment or a command");
        return dpb_status_exit_code(DPB_USAGE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dpbench %s\n", DPB_VERSION);
        return 0;
    }
    if (asks_for_help(argv[1]))
        return run_command(program, help, 1, argv);
    if (argv[1][0] == '-')
        return run_command(program, run, argc, argv);

    const struct dpb_command *command = dpb_command_find(argv[1]);
    if (command && argc == 3 && asks_for_help(argv[2]))
        return run_command(program, help, 2, (char *[]){argv[2], argv[1], NULL});
    if (command)
        return run_command(program, command, argc - 1, argv + 1);
    if (dpb_program_is_users(argv[1]) && dpb_program_find(argv[1], users))
        return dpb_program_become_users(users, argv + 1);
    return dpb_status_exit_code(refuse_command(run, argv[1]));
}

/* ---- the process --------------------------------------------------------------------------- */

/* Messages would be written into the file that took the number of a closed stream. Each stream is
 * opened the wrong way round, so its use still fails. */
static void fill_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Threads get the stack of the limit at the program's start: it begins again with a larger one. */
static dpb_status deepen_stack(char **argv)
{
    const rlim_t least = 1 << 20, usual = 8 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least)
        return DPB_OK;
    if (limit.rlim_max < least)
        return dpb_fail(DPB_UNSUPPORTED,
                        "the stack is limited to %llu KiB (ulimit -s), and dpbench needs %llu",
                        (unsigned long long)limit.rlim_max >> 10, (unsigned long long)least >> 10);
    limit.rlim_cur = usual < limit.rlim_max ? usual : limit.rlim_max;
    if (setrlimit(RLIMIT_STACK, &limit) == 0)
        execv("/proc/self/exe", argv);
    return DPB_OK; /* no /proc: what needs it says so */
}

static bool is_reader_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int64_t dpb_program_began_ns;

int dpb_program_main(const struct dpb_program *program, int argc, char **argv)
{
    dpb_program_began_ns = dpb_now_ns();
    fill_closed_streams();
    if (deepen_stack(argv) != DPB_OK)
        return dpb_status_exit_code(DPB_UNSUPPORTED);
    /* Makes a full disk, a file-size limit and a closed pipe errors to report, not a process's
     * end. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int code = dpb_world_is_rank() ? rank_main(program) : user_main(program, argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && is_reader_gone())
        return code != 0 ? code : 128 + SIGPIPE; /* as of `| head`: nobody wants more */
    if (ferror(stdout)) {
        dpb_fail(DPB_IO, "standard output cannot be written: %m");
        code = dpb_exit_code_first(code, dpb_status_exit_code(DPB_IO));
    }
    return code;
}
