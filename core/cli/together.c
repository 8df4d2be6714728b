/* together.c - runs a command in one of several processes that mpirun or srun started: see
 * cli.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/settings.h"
#include "cli/cli.h"
#include "cli/sweep_options.h"
#include "launch/agree.h"
#include "launch/hosts.h"
#include "launch/machines.h"
#include "launch/meet.h"

#define LAUNCHER "launcher" /* the origin of the launcher's settings */

/* Unless the file says otherwise, all ranks but the servers are workers. */
static dpb_status adopt_workers(const struct dpb_party *party, struct dpb_config *config)
{
    const unsigned long n_servers = dpb_config_count(config, "run", "servers", 0);
    const unsigned long n_learners = dpb_config_count(config, "run", "learners", 1);
    char text[24];
    if (dpb_config_get(config, "run", "workers") || n_servers >= party->n_ranks ||
        n_learners == 0 || (party->n_ranks - n_servers) % n_learners != 0)
        return DPB_OK; /* check_count compares them */
    snprintf(text, sizeof text, "%lu", (party->n_ranks - n_servers) / n_learners);
    return dpb_config_set(config, "run", "workers", text, LAUNCHER);
}

static dpb_status adopt_machines(const struct dpb_party *party, struct dpb_config *config)
{
    enum { BYTES = 16 * 1024 };
    char text[BYTES];
    if (party->n_machines == 1 || dpb_config_get(config, "comm", "hosts"))
        return DPB_OK;
    if (!dpb_machines_format(party->machines, party->n_ranks, text, sizeof text))
        return dpb_fail(DPB_UNSUPPORTED, "%u ranks on %u machines: more than fit into comm.hosts",
                        party->n_ranks, party->n_machines);
    return dpb_config_set(config, "comm", "hosts", text, LAUNCHER);
}

/* Before anything of the configuration is read: what follows from the number of ranks, such as
 * comm.hosts, would be blamed in its place. A text that is no number is refused where it is
 * parsed. */
static dpb_status check_count(const struct dpb_party *party, const struct dpb_config *config)
{
    const unsigned long n_workers = dpb_config_count(config, "run", "workers", 1),
                        n_servers = dpb_config_count(config, "run", "servers", 0),
                        n_learners = dpb_config_count(config, "run", "learners", 1),
                        n_ranks = n_workers * n_learners + n_servers;
    char each[48] = "";
    if (n_workers == 0 || n_learners == 0 || n_ranks == party->n_ranks)
        return DPB_OK;
    if (n_learners > 1)
        snprintf(each, sizeof each, " times run.learners = %lu", n_learners);
    return dpb_config_fail(
        config, DPB_USAGE, "run", "workers",
        "run.workers = %lu%s and run.servers = %lu make %lu ranks, but %s has started %u; %s, or "
        "start as many",
        n_workers, each, n_servers, n_ranks, party->launcher, party->n_ranks,
        dpb_config_get(config, "run", "workers") ? "leave run.workers out"
                                                 : "let run.learners divide its workers");
}

static dpb_status adopt(const struct dpb_party *party, struct dpb_config *config)
{
    if (dpb_sweep_wanted(config))
        return dpb_fail(DPB_USAGE,
                        "a sweep or search starts its own jobs, one by one: run it without %s, and "
                        "let sweep.launch = %s ... start each cell (`dpbench help sweep.launch`)",
                        party->launcher, party->launcher);
    if (getenv(DPB_HOSTS_VARIABLE))
        return dpb_fail(DPB_USAGE,
                        "%s places its processes itself, and `dpbench hosts` (" DPB_HOSTS_VARIABLE
                        ") places the ranks of dpbench's own launcher alone; leave %s out",
                        party->launcher, party->launcher);
    DPB_TRY(adopt_workers(party, config));
    DPB_TRY(check_count(party, config));
    return adopt_machines(party, config);
}

/* comm.hosts may separate ranks of one machine, but not join ranks of two. */
static dpb_status check_machines(const struct dpb_party *party,
                                 const struct dpb_experiment *experiment)
{
    for (uint32_t a = 0; a < party->n_ranks; a++)
        for (uint32_t b = 0; b < a; b++)
            if (experiment->machines[a] == experiment->machines[b] &&
                party->machines[a] != party->machines[b])
                return dpb_fail(DPB_USAGE,
                                "comm.hosts = %s puts ranks %u and %u on one machine, but they are "
                                "on %s and %s; leave comm.hosts out",
                                experiment->settings.comm.hosts, b, a, party->hosts[b],
                                party->hosts[a]);
    return DPB_OK;
}

dpb_status dpb_together_agree(const struct dpb_arguments *arguments, dpb_status status,
                              const struct dpb_experiment *experiment, int *exit_code)
{
    struct dpb_party *party = arguments->party;
    *exit_code = dpb_status_exit_code(status);
    if (!party)
        return status;
    DPB_THEN(status, check_machines(party, experiment));
    json_t *json = status == DPB_OK ? dpb_config_to_json(experiment->config) : NULL;
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    DPB_THEN(status, dpb_allocated(text));
    status =
        dpb_party_agree(party, status, text, experiment ? experiment->n_workers : 0, exit_code);
    free(text);
    json_decref(json);
    return status;
}

/* Processes that a launcher has started without PMIx do not know of each other. */
static void warn_of_copies(void)
{
    static const struct {
        const char *launcher, *variable; /* how many it has started */
    } rows[] = {{"srun", "SLURM_STEP_NUM_TASKS"},   {"mpiexec", "PMI_SIZE"},
                {"mpirun", "OMPI_COMM_WORLD_SIZE"}, {"mpirun_rsh", "MV2_COMM_WORLD_SIZE"},
                {"jsrun", "JSM_NAMESPACE_SIZE"},    {"flux", "FLUX_JOB_SIZE"}};
    uint32_t rank;
    if (dpb_party_is_here(&rank))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = getenv(rows[i].variable);
        if (!text || strtoul(text, NULL, 10) < 2)
            continue;
        dpb_warn(
            "without_pmix",
            "%s has started %s processes without PMIx, so each of them runs a job of its own; "
            "for one job take srun --mpi=pmix, mpirun of Open MPI, or set RANK, WORLD_SIZE and "
            "MASTER_ADDR (docs/launching.md)",
            rows[i].launcher, text);
        return;
    }
}

/* dpbench binds its ranks. With these, as soon as a plugin loads it, OpenMP's library would bind
 * the process and all that it starts to its first place, often one core. */
static void forget_binding(void)
{
    static const char *const variables[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                            "KMP_AFFINITY"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (!value || strcasecmp(value, "false") == 0)
            continue;
        dpb_warn("binding_ignored",
                 "%s=%s is not passed on: dpbench binds each rank to cores of its own, and this "
                 "would bind all of them to the first",
                 variables[i], value);
        unsetenv(variables[i]);
    }
}

/* run.timeout_s, before the experiment is known. A value that is no time is refused once all parts
 * have joined. */
static int64_t timeout_of(const struct dpb_config *config)
{
    const struct dpb_setting *given = config ? dpb_config_get(config, "run", "timeout_s") : NULL;
    int64_t ns = DPB_TIMEOUT_NS;
    if (given && dpb_parse_time(given->value, "s", &ns))
        return ns > 0 ? ns : DPB_TIMEOUT_NS;
    return ns;
}

int dpb_together(const struct dpb_command *self, unsigned accepts, dpb_read_result *read, int argc,
                 char **argv, int (*run)(struct dpb_arguments *arguments))
{
    struct dpb_arguments arguments = {0};
    struct dpb_party *party = NULL;
    struct dpb_environment environment;
    dpb_party_hush();
    warn_of_copies();
    forget_binding();
    dpb_status status = dpb_arguments_parse(self, accepts, read, argc, argv, &arguments);
    dpb_status joined = dpb_environment_read(arguments.config, &environment);
    if (joined != DPB_OK)
        dpb_party_complain();
    DPB_THEN(joined, dpb_party_join(timeout_of(arguments.config), &environment, &party));
    if (joined != DPB_OK) {
        dpb_arguments_release(&arguments);
        return dpb_status_exit_code(joined);
    }
    arguments.party = party;
    if (status == DPB_OK && party)
        status = adopt(party, arguments.config);
    int code;
    if (status == DPB_OK)
        code = run(&arguments);
    else
        dpb_together_agree(&arguments, status, NULL, &code);
    dpb_arguments_release(&arguments);
    dpb_party_leave(party, code);
    return code;
}
