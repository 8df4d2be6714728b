/* environment.c - see environment.h. */
#include "launch/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/secret.h"
#include "base/settings.h"
#include "world/pmix.h"

enum { SECRET_LEAST = 16, SECRET_MOST = 4096 };

/* The variable's number; false: there is none, or it is no number. */
static bool number_of(const char *variable, uint32_t *number)
{
    const char *text = getenv(variable);
    char *end = NULL;
    errno = 0;
    const unsigned long value = text ? strtoul(text, &end, 10) : 0;
    if (!text || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > INT32_MAX)
        return false;
    *number = (uint32_t)value;
    return true;
}

bool dpb_environment_is_here(uint32_t *rank)
{
    uint32_t n_ranks;
    if (dpb_pmix_is_here())
        return false;
    if (getenv("RANK"))
        return number_of("WORLD_SIZE", &n_ranks) && n_ranks > 1 && number_of("RANK", rank);
    return getenv("MASTER_ADDR") && number_of("JOB_COMPLETION_INDEX", rank);
}

/* ---- the secret ---------------------------------------------------------------------------- */

/* A text of any length becomes a key. */
static dpb_status take_text(const char *from, const char *text, size_t n,
                            uint8_t secret[DPB_SECRET_BYTES])
{
    static const uint8_t label[DPB_SECRET_BYTES] = "dpbench: a job by its variables";
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    if (n < SECRET_LEAST)
        return dpb_fail(DPB_USAGE, "%s: a secret of %zu characters can be guessed; give %d or more",
                        from, n, SECRET_LEAST);
    dpb_mac(label, text, n, secret);
    return DPB_OK;
}

static dpb_status read_file(const char *path, uint8_t secret[DPB_SECRET_BYTES])
{
    char text[SECRET_MOST];
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return dpb_fail(DPB_USAGE, DPB_SECRET_FILE_VARIABLE " = %s: %s", path, strerror(error));
    }
    ssize_t n = -1;
    dpb_status status = DPB_OK;
    if (!S_ISREG(info.st_mode))
        status = dpb_fail(DPB_USAGE, DPB_SECRET_FILE_VARIABLE " = %s is no file", path);
    else if ((info.st_mode & 077) != 0)
        status = dpb_fail(DPB_USAGE,
                          DPB_SECRET_FILE_VARIABLE " = %s has mode %04o, so others may know the "
                                                   "secret; take another one, and chmod 600",
                          path, (unsigned)info.st_mode & 07777U);
    else if ((n = read(fd, text, sizeof text)) < 0)
        status = dpb_fail(DPB_USAGE, DPB_SECRET_FILE_VARIABLE " = %s: %s", path, strerror(errno));
    close(fd);
    DPB_THEN(status, take_text(path, text, (size_t)n, secret));
    explicit_bzero(text, sizeof text);
    return status;
}

/* *given: there is one. Neither stays in the environment. */
static dpb_status take_secret(uint8_t secret[DPB_SECRET_BYTES], bool *given)
{
    const char *file = getenv(DPB_SECRET_FILE_VARIABLE);
    char *text = getenv(DPB_SECRET_VARIABLE);
    dpb_status status = DPB_OK;
    *given = file || text;
    if (file && text)
        status = dpb_fail(DPB_USAGE, DPB_SECRET_FILE_VARIABLE " and " DPB_SECRET_VARIABLE
                                                              " are both set; unset one of them");
    else if (file)
        status = read_file(file, secret);
    else if (text)
        status = take_text(DPB_SECRET_VARIABLE, text, strlen(text), secret);
    if (text)
        explicit_bzero(text, strlen(text));
    unsetenv(DPB_SECRET_FILE_VARIABLE);
    unsetenv(DPB_SECRET_VARIABLE);
    return status;
}

/* ---- the job ------------------------------------------------------------------------------- */

/* An option of [run], before the experiment is known; "": it is not given. */
static const char *text_of(const struct dpb_config *config, const char *key)
{
    const struct dpb_setting *given = config ? dpb_config_get(config, "run", key) : NULL;
    return given ? given->value : "";
}

/* run.launch = environment. A value that is none is refused once the processes have joined. */
static bool by_machine(const struct dpb_config *config)
{
    return strcmp(text_of(config, "launch"), DPB_ENVIRONMENT_LAUNCHER) == 0;
}

/* More than a job can have is one more. */
static uint32_t count_of(const struct dpb_config *config, const char *key, uint32_t none)
{
    const unsigned long n = dpb_config_count(config, "run", key, none);
    return n > DPB_JOB_RANKS ? DPB_JOB_RANKS + 1 : (uint32_t)n;
}

/* The variables number ranks. */
static void count_ranks(const struct dpb_config *config, struct dpb_environment *environment)
{
    if (getenv("RANK"))
        number_of("WORLD_SIZE", &environment->n_ranks);
    else if (config)
        environment->n_ranks = count_of(config, "workers", 1) * count_of(config, "learners", 1) +
                               count_of(config, "servers", 0);
    environment->n_parts = environment->n_workers = environment->n_ranks;
}

/* The variables number machines. */
static dpb_status count_machines(const struct dpb_config *config,
                                 struct dpb_environment *environment)
{
    if (!number_of("WORLD_SIZE", &environment->n_parts) || environment->n_parts == 0)
        return dpb_fail(DPB_USAGE,
                        "run.launch = environment needs WORLD_SIZE, the number of machines: set it "
                        "in each process (a Job of Kubernetes: to its completions)");
    if (!config)
        return DPB_OK;
    const uint32_t n_parts = environment->n_parts, workers = count_of(config, "workers", n_parts);
    if (workers == 0 || workers % n_parts != 0)
        return dpb_config_fail(config, DPB_USAGE, "run", "workers",
                               "run.workers = %s do not divide by the %u machines (WORLD_SIZE) of "
                               "run.launch = environment; take a multiple of %u",
                               text_of(config, "workers"), n_parts, n_parts);
    environment->n_workers = workers * count_of(config, "learners", 1);
    environment->n_ranks = environment->n_workers + count_of(config, "servers", 0);
    if (environment->n_workers == 0) /* run.learners = 0 is refused where all options are */
        environment->n_parts = 0;
    return DPB_OK;
}

static dpb_status find_size(const struct dpb_config *config, struct dpb_environment *environment)
{
    if (by_machine(config))
        DPB_TRY(count_machines(config, environment));
    else
        count_ranks(config, environment);
    if (environment->n_parts < 2)
        return DPB_OK;
    if (environment->n_ranks > DPB_JOB_RANKS)
        return dpb_fail(DPB_USAGE,
                        "the variables of this process name a job of %u ranks; a job "
                        "has at most %d",
                        environment->n_ranks, DPB_JOB_RANKS);
    if (environment->part >= environment->n_parts)
        return dpb_fail(DPB_USAGE, "%s = %u, and the job has %u %s, from 0 on",
                        getenv("RANK") ? "RANK" : "JOB_COMPLETION_INDEX", environment->part,
                        environment->n_parts, by_machine(config) ? "machines" : "ranks");
    return DPB_OK;
}

/* Where no rank is found: a mistake must not become a job of each process's own. */
static dpb_status check_rank(const struct dpb_config *config)
{
    uint32_t n_ranks, rank;
    if (by_machine(config) && dpb_pmix_is_here())
        return dpb_config_fail(config, DPB_USAGE, "run", "launch",
                               "run.launch = environment, and %s numbers its processes by PMIx, a "
                               "rank each; leave run.launch out, or unset PMIX_RANK and set RANK, "
                               "WORLD_SIZE and MASTER_ADDR",
                               dpb_pmix_launcher());
    if (by_machine(config) && !getenv("RANK"))
        return dpb_config_fail(config, DPB_USAGE, "run", "launch",
                               "run.launch = environment, and no variable says which machine this "
                               "is: set RANK (or JOB_COMPLETION_INDEX), WORLD_SIZE and MASTER_ADDR "
                               "in one process a machine, or leave run.launch out");
    if (dpb_pmix_is_here() || !getenv("RANK") || number_of("RANK", &rank) ||
        !number_of("WORLD_SIZE", &n_ranks) || n_ranks < 2)
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "RANK = '%s' beside WORLD_SIZE = %u is no rank; give 0 to %u, or "
                    "unset RANK",
                    getenv("RANK"), n_ranks, n_ranks - 1);
}

static dpb_status find_master(struct dpb_environment *environment)
{
    const char *master = getenv("MASTER_ADDR");
    if (!master)
        return dpb_fail(
            DPB_USAGE,
            "RANK = %u and WORLD_SIZE = %u say that a launcher has started this process, "
            "and MASTER_ADDR is not set; set it to rank 0's machine, or unset RANK",
            environment->part, environment->n_parts);
    if (master[0] == '\0' || master[0] == '@' || strlen(master) >= sizeof environment->master ||
        strpbrk(master, " \t\n"))
        return dpb_fail(DPB_USAGE, "MASTER_ADDR = '%s' is no name or address of a machine", master);
    snprintf(environment->master, sizeof environment->master, "%s", master);
    return DPB_OK;
}

static dpb_status find_port(const struct dpb_config *config, unsigned *port)
{
    const struct dpb_setting *given = config ? dpb_config_get(config, "run", "port") : NULL;
    uint32_t number = 0;
    if (given) {
        *port = (unsigned)dpb_config_count(config, "run", "port", 0);
        if (*port > 0)
            return *port <= UINT16_MAX ? DPB_OK
                                       : dpb_fail(DPB_USAGE, "%s: run.port = %s is no port",
                                                  given->origin, given->value);
    }
    if (!getenv("MASTER_PORT"))
        return dpb_fail(DPB_USAGE, "where does rank 0 listen? Set run.port, or MASTER_PORT, which "
                                   "is the port before");
    if (!number_of("MASTER_PORT", &number) || number == 0 || number >= UINT16_MAX)
        return dpb_fail(DPB_USAGE,
                        "MASTER_PORT = '%s' is no port with another one after it; set run.port",
                        getenv("MASTER_PORT"));
    *port = number + 1;
    return DPB_OK;
}

static bool is_open(const struct dpb_config *config)
{
    bool open = false;
    return dpb_parse_bool(text_of(config, "open"), &open) && open;
}

dpb_status dpb_environment_read(const struct dpb_config *config,
                                struct dpb_environment *environment)
{
    uint8_t secret[DPB_SECRET_BYTES] = {0};
    char text[2 * DPB_SECRET_BYTES + 1];
    bool given = false;
    unsigned port = 0;
    uint32_t n_local = 0;
    *environment = (struct dpb_environment){.n_parts = 0};
    DPB_TRY(take_secret(secret, &given));
    if (!dpb_environment_is_here(&environment->part))
        return check_rank(config);
    DPB_TRY(find_size(config, environment));
    if (environment->n_parts < 2)
        return DPB_OK;
    DPB_TRY(find_master(environment));
    DPB_TRY(find_port(config, &port));
    const bool local = number_of("LOCAL_WORLD_SIZE", &n_local) && n_local == environment->n_parts;
    if (!local && !given && !is_open(config))
        return dpb_fail(DPB_USAGE,
                        "the ranks are on several machines (LOCAL_WORLD_SIZE is not WORLD_SIZE), "
                        "and nothing proves which processes are of the job; give each of them "
                        "the same " DPB_SECRET_FILE_VARIABLE " (mode 0600) or " DPB_SECRET_VARIABLE
                        ", or say run.open = yes in a network that you trust");
    environment->restarts = config && dpb_config_count(config, "run", "restart", 0) > 0;
    dpb_secret_print(secret, text);
    if (local)
        snprintf(environment->address, sizeof environment->address, "%s %u @dpbench-%u-%u", text,
                 port, (unsigned)geteuid(), port);
    else
        snprintf(environment->address, sizeof environment->address, "%s %u %s", text, port,
                 environment->master);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    return DPB_OK;
}
