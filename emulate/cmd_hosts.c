/* cmd_hosts.c - `dpbench hosts N --rate RATE ... -- COMMAND`: runs a command on a cluster of N
 * hosts that is on this machine. Ranks of the command's jobs find their hosts by launch/hosts.h. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cli.h"
#include "emulate/network.h"

/* ---- arguments ------------------------------------------------------------------------------ */

struct asked {
    struct dpb_hosts_plan plan;
    const char *dilation; /* as given: DPBENCH_DILATION */
    char **words;         /* COMMAND, ended by NULL */
};

static dpb_status take_rate(const struct dpb_command *self, const char *text, uint64_t *rate)
{
    if (dpb_parse_quantity(text, dpb_rate_units, NULL, rate) == DPB_PARSED && *rate > 0)
        return DPB_OK;
    return dpb_usage_error(self,
                           "'%s' is no rate: write a number with kbit, Mbit, Gbit, kB, MB or GB (a "
                           "second), as in 10Gbit",
                           text);
}

/* "2:1" */
static dpb_status take_uplink(const struct dpb_command *self, const char *text, double *uplink)
{
    char number[32];
    const char *colon = strchr(text, ':');
    snprintf(number, sizeof number, "%.*s", colon ? (int)(colon - text) : 0, text);
    if (colon && strcmp(colon, ":1") == 0 && dpb_parse_real(number, uplink) == DPB_PARSED &&
        *uplink >= 1 && *uplink <= 1000)
        return DPB_OK;
    return dpb_usage_error(self,
                           "--uplink: '%s' is not of the form 2:1, which is what the hosts of a "
                           "half send together over what the cable between the halves takes",
                           text);
}

/* "3=1Gbit" */
static dpb_status take_slow(const struct dpb_command *self, const char *text,
                            struct dpb_hosts_plan *plan)
{
    char number[16];
    int64_t host = 0;
    const char *rate = strchr(text, '=');
    snprintf(number, sizeof number, "%.*s", rate ? (int)(rate - text) : 0, text);
    if (!rate || dpb_parse_int(number, &host) != DPB_PARSED || host < 1 || host > plan->n)
        return dpb_usage_error(
            self, "--slow: '%s' is not HOST=RATE, with a host from 1 to %u, as in 1=1Gbit", text,
            plan->n);
    return take_rate(self, rate + 1, &plan->rates[host - 1]);
}

static dpb_status take_option(const struct dpb_command *self, const char *option, const char *text,
                              struct asked *asked)
{
    struct dpb_hosts_plan *plan = &asked->plan;
    if (!text || strcmp(text, "--") == 0)
        return dpb_usage_error(self, "%s needs a value", option);
    if (strcmp(option, "--rate") == 0)
        return take_rate(self, text, &plan->rate);
    if (strcmp(option, "--slow") == 0)
        return take_slow(self, text, plan);
    if (strcmp(option, "--uplink") == 0)
        return take_uplink(self, text, &plan->uplink);
    if (strcmp(option, "--latency") == 0)
        return dpb_parse_quantity(text, dpb_time_units, NULL, &plan->latency_ns) == DPB_PARSED
                   ? DPB_OK
                   : dpb_usage_error(self, "--latency: '%s' is no time, as in 50us", text);
    if (strcmp(option, "--dilation") != 0)
        return dpb_unknown_option(self, option);
    asked->dilation = text;
    return dpb_parse_real(text, &plan->dilation) == DPB_PARSED && plan->dilation >= 1 &&
                   plan->dilation <= 1e4
               ? DPB_OK
               : dpb_usage_error(self, "--dilation: '%s' is no number from 1 to 10000", text);
}

static dpb_status check(const struct dpb_command *self, const struct asked *asked)
{
    const struct dpb_hosts_plan *plan = &asked->plan;
    if (plan->rate == 0)
        return dpb_usage_error(self, "which links? give --rate, as in --rate 10Gbit");
    if (plan->uplink > 0 && plan->n % 2 != 0)
        return dpb_usage_error(self, "--uplink: %u hosts have no halves; take an even number",
                               plan->n);
    if (!asked->words[0])
        return dpb_usage_error(self, "which command? write it behind --, as in -- dpbench comm "
                                     "-c x.ini");
    return DPB_OK;
}

/* The number of hosts comes first: --slow is held to it. */
static dpb_status parse(const struct dpb_command *self, int argc, char **argv, struct asked *asked)
{
    struct dpb_hosts_plan *plan = &asked->plan;
    int64_t n = 0;
    int i = 2;
    if (argc < 2 || dpb_parse_int(argv[1], &n) != DPB_PARSED || n < 2 || n > DPB_HOSTS_MOST)
        return dpb_usage_error(self, "how many hosts? first give their number, from 2 to %d",
                               DPB_HOSTS_MOST);
    *asked = (struct asked){.plan = {.n = (uint32_t)n, .dilation = 1}, .dilation = "1"};
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 2)
        DPB_TRY(take_option(self, argv[i], i + 1 < argc ? argv[i + 1] : NULL, asked));
    asked->words = argv + (i < argc ? i + 1 : argc);
    for (uint32_t host = 0; host < plan->n; host++)
        if (plan->rates[host] == 0)
            plan->rates[host] = plan->rate;
    return check(self, asked);
}

/* ---- the environment of COMMAND -------------------------------------------------------------- */

static char *describe(const struct dpb_hosts_plan *plan)
{
    json_t *slow = json_array();
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->rates[i] != plan->rate)
            json_array_append_new(slow, json_pack("{s:I, s:I}", "host", (json_int_t)i + 1,
                                                  "rate_bytes_per_s", (json_int_t)plan->rates[i]));
    json_t *network =
        json_pack("{s:I, s:I, s:I, s:o, s:o, s:f}", "n", (json_int_t)plan->n, "rate_bytes_per_s",
                  (json_int_t)plan->rate, "latency_ns", (json_int_t)plan->latency_ns, "uplink",
                  plan->uplink > 0 ? json_real(plan->uplink) : json_null(), "slow", slow,
                  "dilation", plan->dilation);
    char *text = network ? json_dumps(network, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(network);
    return text;
}

static dpb_status export_hosts(const struct asked *asked, const struct dpb_hosts_network *network)
{
    char holders[12 * DPB_HOSTS_MOST];
    struct dpb_text list = dpb_text_in(holders, sizeof holders);
    for (uint32_t i = 0; i < asked->plan.n; i++)
        dpb_text_item(&list, ":", "%d", (int)network->holders[i]);
    char *text = describe(&asked->plan);
    const bool all = text && setenv(DPB_HOSTS_VARIABLE, holders, 1) == 0 &&
                     setenv(DPB_HOSTS_NETWORK_VARIABLE, text, 1) == 0 &&
                     setenv("DPBENCH_DILATION", asked->dilation, 1) == 0;
    free(text);
    return dpb_allocated(all);
}

/* ---- COMMAND --------------------------------------------------------------------------------- */

/* It ends with this process. */
static void become(char **words, const sigset_t *mask, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGXFSZ, SIG_DFL); /* ignored signals would stay so */
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(words[0], words);
    const bool missing = errno == ENOENT;
    dpb_fail(DPB_USAGE, "cannot run %s: %s", words[0], strerror(errno));
    _exit(missing ? 127 : 126); /* as a shell does */
}

/* Passes on the signals of `set`, which are blocked, but for the terminal's: it sends them to the
 * command, too. Returns the command's exit code, as a shell does. */
static int follow(pid_t command, const sigset_t *set)
{
    int status;
    while (waitpid(command, &status, WNOHANG) != command) {
        siginfo_t info;
        if (sigwaitinfo(set, &info) > 0 && info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
            kill(command, info.si_signo);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run(const struct asked *asked)
{
    static const int passed_on[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct dpb_hosts_network network = {0};
    const pid_t parent = getpid();
    sigset_t set, mask;
    int code = 0;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaddset(&set, passed_on[i]);
    dpb_status status = dpb_hosts_network_up(&asked->plan, &network);
    DPB_THEN(status, export_hosts(asked, &network));
    sigprocmask(SIG_BLOCK, &set, &mask);
    const pid_t command = status == DPB_OK ? fork() : 0;
    if (status == DPB_OK && command == 0)
        become(asked->words, &mask, parent);
    if (command < 0)
        status = dpb_fail(DPB_FAILED, "cannot start %s: %s", asked->words[0], strerror(errno));
    if (status == DPB_OK) {
        code = follow(command, &set);
        dpb_hosts_network_check(&network);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    dpb_hosts_network_down(&network);
    return status == DPB_OK ? code : dpb_status_exit_code(status);
}

static int command_hosts(const struct dpb_command *self, int argc, char **argv)
{
    struct asked asked;
    const dpb_status status = parse(self, argc, argv, &asked);
    return status == DPB_OK ? run(&asked) : dpb_status_exit_code(status);
}

DPB_PROGRAM("hosts", command_hosts)
