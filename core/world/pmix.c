/* pmix.c - see pmix.h. */
#include "world/pmix.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"

bool dpb_pmix_is_here(void)
{
    return getenv("PMIX_NAMESPACE") && getenv(DPB_PMIX_RANK_VARIABLE);
}

uint32_t dpb_pmix_rank(void)
{
    const char *rank = getenv(DPB_PMIX_RANK_VARIABLE);
    return rank ? (uint32_t)strtoul(rank, NULL, 10) : 0;
}

const char *dpb_pmix_launcher(void)
{
    if (getenv("OMPI_COMM_WORLD_RANK")) /* within an allocation of Slurm, too */
        return "mpirun";
    return getenv("SLURM_STEP_ID") ? "srun" : "pmix";
}

#ifdef DPB_HAVE_PMIX

#include <pmix.h>

#define ADDRESS_KEY "dpbench.address"
enum { FDS_LOOKED_AT = 1024, RETRY_MS = 10 };

/* The functions of the library that are used. */
static struct {
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Get_version) *version;
    __typeof__(PMIx_Error_string) *error_string;
} pmix;
static pmix_proc_t self;
static bool is_open;

static dpb_status load_library(void)
{
    /* The library's components use its symbols without naming it: so the symbols are global. */
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"PMIx_Init", &pmix.init},
        {"PMIx_Finalize", &pmix.finalize},
        {"PMIx_Get", &pmix.get},
        {"PMIx_Put", &pmix.put},
        {"PMIx_Commit", &pmix.commit},
        {"PMIx_Get_version", &pmix.version},
        {"PMIx_Error_string", &pmix.error_string},
    };
    for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found)
            library = NULL;
        memcpy(functions[i].function, &found, sizeof found);
    }
    if (!library)
        return dpb_fail(DPB_FAILED,
                        "a launcher with PMIx started this process, but its library cannot be "
                        "loaded: %s (Debian: libpmix2)",
                        dlerror());
    return DPB_OK;
}

static dpb_status failed(const char *what, pmix_status_t status)
{
    return dpb_fail(DPB_FAILED, "PMIx: %s: %s", what, pmix.error_string(status));
}

/* A value of one of the two types; it is freed. */
static dpb_status take(pmix_value_t *value, const char *key, uint32_t *number, char *text,
                       size_t capacity)
{
    bool good = false;
    if (number && value->type == PMIX_UINT32) {
        *number = value->data.uint32;
        good = true;
    } else if (text && value->type == PMIX_STRING && value->data.string) {
        good = strlen(value->data.string) < capacity;
        snprintf(text, capacity, "%s", value->data.string);
        free(value->data.string);
    }
    free(value);
    return good ? DPB_OK
                : dpb_fail(DPB_FAILED, "PMIx: %s has another type or is longer than expected", key);
}

/* The value of `key` of a rank of this job, which the launcher itself has put there. */
static dpb_status get(pmix_rank_t rank, const char *key, uint32_t *number, char *text,
                      size_t capacity)
{
    pmix_proc_t proc = self;
    pmix_value_t *value = NULL;
    proc.rank = rank;
    pmix_status_t status = pmix.get(&proc, key, NULL, 0, &value);
    return status == PMIX_SUCCESS ? take(value, key, number, text, capacity) : failed(key, status);
}

static dpb_status publish(const char *address)
{
    char text[DPB_ADDRESS_BYTES];
    snprintf(text, sizeof text, "%s", address);
    pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
    pmix_status_t status = pmix.put(PMIX_GLOBAL, ADDRESS_KEY, &value);
    explicit_bzero(text, sizeof text);
    if (status == PMIX_SUCCESS)
        status = pmix.commit();
    return status == PMIX_SUCCESS ? DPB_OK : failed("put", status);
}

/* Rank 0's address, once it is there. The server waits for the address; but a server that has just
 * learnt of rank 0 alone says at once that there is none (PMIx 4.2). */
static dpb_status get_address(int64_t timeout_ns, char address[DPB_ADDRESS_BYTES])
{
    const struct dpb_deadline deadline = dpb_deadline_in(timeout_ns);
    pmix_proc_t head = self;
    pmix_value_t *value = NULL;
    pmix_status_t status;
    pmix_info_t limit;
    memset(&limit, 0, sizeof limit);
    snprintf(limit.key, sizeof limit.key, "%s", PMIX_TIMEOUT);
    limit.value.type = PMIX_INT;
    head.rank = 0;
    for (;;) {
        const int64_t left_ns = dpb_deadline_left_ns(deadline);
        limit.value.data.integer = left_ns > 0 ? (int)(left_ns / 1000000000) + 1 : 1;
        status = pmix.get(&head, ADDRESS_KEY, &limit, 1, &value);
        if (status != PMIX_ERR_NOT_FOUND || left_ns <= 0)
            break;
        poll(NULL, 0, RETRY_MS);
    }
    if (status == PMIX_ERR_TIMEOUT || status == PMIX_ERR_NOT_FOUND)
        return dpb_fail(
            DPB_TIMEOUT,
            "rank 0 has not said by PMIx where its launcher listens within %.1f s: it is "
            "stopped, or has not been started by dpbench",
            (double)timeout_ns * 1e-9);
    return status == PMIX_SUCCESS ? take(value, ADDRESS_KEY, NULL, address, DPB_ADDRESS_BYTES)
                                  : failed(ADDRESS_KEY, status);
}

/* A socket that has a named place at its other end: the ends of a pair have none. */
static bool is_connection(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } peer;
    socklen_t bytes = sizeof peer;
    return getpeername(fd, &peer.any, &bytes) == 0 && bytes > sizeof peer.any.sa_family;
}

/* PMIx does not reveal its descriptor; it takes the lowest ones that are free. */
dpb_status dpb_pmix_open(int *connection)
{
    bool before[FDS_LOOKED_AT];
    *connection = -1;
    DPB_TRY(load_library());
    for (int fd = 0; fd < FDS_LOOKED_AT; fd++)
        before[fd] = is_connection(fd);
    pmix_status_t status = pmix.init(&self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return dpb_fail(DPB_FAILED,
                        "PMIx: init: %s: no launcher answers for the job that PMIX_NAMESPACE = %s "
                        "names; if the variables are left of another job, start by `env -u "
                        "PMIX_NAMESPACE dpbench ...`",
                        pmix.error_string(status), getenv("PMIX_NAMESPACE"));
    is_open = true;
    for (int fd = 0; fd < FDS_LOOKED_AT && *connection < 0; fd++)
        if (!before[fd] && is_connection(fd))
            *connection = fd;
    return DPB_OK;
}

dpb_status dpb_pmix_join(const char *address, int64_t timeout_ns, struct dpb_joined *joined)
{
    struct dpb_joined made = {.rank = self.rank};
    DPB_TRY(get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &made.n_ranks, NULL, 0));
    made.hosts = calloc(made.n_ranks, sizeof *made.hosts);
    DPB_TRY(dpb_allocated(made.hosts));
    snprintf(made.address, sizeof made.address, "%s", address);
    dpb_status result = made.rank == 0 ? publish(address) : get_address(timeout_ns, made.address);
    for (uint32_t rank = 0; result == DPB_OK && rank < made.n_ranks; rank++)
        result = get(rank, PMIX_HOSTNAME, NULL, made.hosts[rank], DPB_HOST_BYTES);
    if (result != DPB_OK) {
        free(made.hosts);
        return result;
    }
    *joined = made;
    return DPB_OK;
}

dpb_status dpb_pmix_check_mpi(void)
{
    pmix_proc_t all = self;
    pmix_value_t *value = NULL;
    const char *theirs = getenv("PMIX_VERSION"), *ours = pmix.version();
    int length = (int)strcspn(ours, ",("); /* "OpenPMIx 5.0.11 (PMIx Standard: 5.1, ..." */
    while (length > 0 && ours[length - 1] == ' ')
        length--;
    all.rank = PMIX_RANK_WILDCARD;
    if (pmix.get(&all, PMIX_LOCAL_SIZE, NULL, 0, &value) == PMIX_SUCCESS) {
        free(value);
        return DPB_OK;
    }
    return dpb_fail(
        DPB_UNSUPPORTED,
        "MPI cannot begin: %s has PMIx %s, this process %.*s, which does not learn from "
        "it how many ranks are on this machine; take an MPI with the launcher's PMIx",
        dpb_pmix_launcher(), theirs ? theirs : "of another kind", length, ours);
}

void dpb_pmix_leave(void)
{
    if (is_open)
        pmix.finalize(NULL, 0);
    is_open = false;
}

/* ---- in the place of PMIx, for MPI ---------------------------------------------------------- */

/* A process whose peer has died asks the launcher to kill the job, and Slurm does so before there
 * is a cause or a result. This process alone cannot continue: its own launcher ends the job. */
pmix_status_t PMIx_Abort(int status, const char message[], pmix_proc_t procs[], size_t n_procs)
{
    (void)procs, (void)n_procs;
    dpb_fail(DPB_PEER, "MPI cannot continue (PMIx_Abort, status %d%s%s)", status,
             message && message[0] != '\0' ? ": " : "", message ? message : "");
    _exit(dpb_status_exit_code(DPB_PEER));
}

/* If PMIx is open, Open MPI 5 takes it for its own, and learns neither its rank nor its job. By
 * this answer it opens PMIx a second time, which PMIx counts. */
int PMIx_Initialized(void)
{
    return 0;
}

#else

dpb_status dpb_pmix_open(int *connection)
{
    *connection = -1;
    return dpb_fail(DPB_UNSUPPORTED,
                    "%s started this process, and dpbench was built without PMIx: build it with "
                    "libpmix-dev, or start it without %s",
                    dpb_pmix_launcher(), dpb_pmix_launcher());
}

dpb_status dpb_pmix_join(const char *address, int64_t timeout_ns, struct dpb_joined *joined)
{
    (void)address, (void)timeout_ns, (void)joined;
    return DPB_UNSUPPORTED;
}

dpb_status dpb_pmix_check_mpi(void)
{
    return DPB_UNSUPPORTED;
}

void dpb_pmix_leave(void)
{
}

#endif
