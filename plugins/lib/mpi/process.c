/* process.c - see process.h. */
#include "lib/mpi/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

const struct dpb_host *mpi_host;

/* ---- initialised once, finalised once after the last communicator --------------------------- */

static bool initialised, healthy;

dpb_status mpi_fail(dpb_status status, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return mpi_host->fail(status, "%s failed: %s", what, text);
}

/* MPI_Finalize is collective: it would wait for ever if this process, or a process that this one
 * waited for, has failed. */
static void finalise(int exit_code, void *unused)
{
    (void)unused;
    if (healthy && exit_code == 0)
        MPI_Finalize();
}

static dpb_status initialise(int wanted)
{
    static const char *const levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    static int provided;
    if (!initialised) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        if (code != MPI_SUCCESS)
            return mpi_fail(DPB_FAILED, code, "MPI_Init_thread");
        initialised = true;
        on_exit(finalise, NULL);
    }
    if (provided < wanted)
        return mpi_host->fail(DPB_UNSUPPORTED,
                              "this MPI library offers MPI_THREAD_%s, and run.comm_cores = 1 needs "
                              "MPI_THREAD_SERIALIZED; set run.comm_cores = 0",
                              levels[provided - MPI_THREAD_SINGLE]);
    return DPB_OK;
}

/* Ranks are numbered by the launcher, for MPI as for dpbench. */
static dpb_status check_world(const struct dpb_comm_args *job)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if ((uint32_t)size == job->n_workers && (uint32_t)rank == job->rank)
        return DPB_OK;
    return mpi_host->fail(DPB_FAILED,
                          "MPI says that this is rank %d of %d, dpbench that it is rank %u of %u: "
                          "is this the library of the mpirun that started the job?",
                          rank, size, job->rank, job->n_workers);
}

dpb_status mpi_process_open(const struct dpb_comm_args *job)
{
    DPB_TRY(initialise(job->comm_cores > 0 ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED));
    DPB_TRY(check_world(job));
    healthy = false;
    return DPB_OK;
}

void mpi_process_close(void)
{
    healthy = true;
}

/* ---- versions ------------------------------------------------------------------------------ */

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)
#if defined(OPEN_MPI)
#define BUILT                                                                               \
    "Open MPI " VALUE_OF(OMPI_MAJOR_VERSION) "." VALUE_OF(OMPI_MINOR_VERSION) "." VALUE_OF( \
        OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define BUILT "MPICH " MPICH_VERSION
#else
#define BUILT "MPI " VALUE_OF(MPI_VERSION) "." VALUE_OF(MPI_SUBVERSION)
#endif
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
#define BUILT_CUDA "yes"
#else
#define BUILT_CUDA "no"
#endif

static char loaded_version[MPI_MAX_LIBRARY_VERSION_STRING];
static char loaded_cuda[8];

const struct dpb_library mpi_versions[] = {
    {.name = "MPI", .built = BUILT, .loaded = loaded_version},
    {.name = "CUDA-aware MPI", .built = BUILT_CUDA, .loaded = loaded_cuda},
    {.name = NULL}};

/* Both may be asked before MPI is initialised. */
void mpi_look_at_library(void)
{
    int length;
    MPI_Get_library_version(loaded_version, &length);
    loaded_version[strcspn(loaded_version, ",\n")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
#ifdef MPIX_CUDA_AWARE_SUPPORT
    snprintf(loaded_cuda, sizeof loaded_cuda, "%s", MPIX_Query_cuda_support() ? "yes" : "no");
#else
    snprintf(loaded_cuda, sizeof loaded_cuda, "?");
#endif
}
