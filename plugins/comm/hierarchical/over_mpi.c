/*
 * over_mpi.c - between machines by MPI: see across.h, and mpi.h for MPI's rules.
 *
 * The ranks at place l of all machines have a communicator of their own, by MPI_Comm_split. Ranks
 * without a share have no communicator, but call MPI_Comm_split, too. Each element belongs to one
 * share, and MPI gives all its members identical sums. The members write the sums into all arenas
 * of their machines, so replicas are equal bit for bit.
 */
#include "across.h"
#include "lib/object/mpi.h"

struct over_mpi {
    struct across base;
    const struct dpb_host *host;
    const struct dpb_mpi_library *library;
};

static dpb_status over_mpi_plan(struct across *across, uint64_t share_elements,
                                struct dpb_comm_plan *want)
{
    (void)want;
    return ((struct over_mpi *)across)->library->check_length(share_elements);
}

static dpb_status over_mpi_connect(struct across *across, const struct across_group *group)
{
    struct over_mpi *over = (struct over_mpi *)across;
    const struct dpb_arenas *arenas = group->arenas;
    const struct dpb_mpi_sums_args args = {
        .arena = arenas->gradients,
        .type = arenas->layout.gradient_type,
        .n_buckets = arenas->n_buckets,
        .group = group->place < group->n_shares ? (int32_t)group->place : DPB_MPI_NO_GROUP,
        .position = group->machine,
        .n_members = group->job->n_machines};
    return over->library->create(&args, &across->sums);
}

static void over_mpi_close(struct across *across)
{
    struct over_mpi *over = (struct over_mpi *)across;
    dpb_sums_destroy(across->sums);
    over->library->close();
    over->host->release(over, sizeof *over);
}

static const struct across_ops ops = {
    .plan = over_mpi_plan, .connect = over_mpi_connect, .close = over_mpi_close};

dpb_status across_open_mpi(const struct dpb_host *host, const struct dpb_comm_args *job,
                           struct across **across)
{
    const struct dpb_mpi_library *library;
    DPB_TRY(dpb_mpi_load(host, &library));
    DPB_TRY(library->open(job));
    struct over_mpi *over = host->alloc(sizeof *over);
    if (!over)
        return DPB_NO_MEMORY;
    *over = (struct over_mpi){.base = {.ops = &ops}, .host = host, .library = library};
    *across = &over->base;
    return DPB_OK;
}
