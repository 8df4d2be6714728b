/* process.h - MPI in this process: its one initialisation and its versions. */
#ifndef DPB_PLUGINS_LIB_MPI_PROCESS_H
#define DPB_PLUGINS_LIB_MPI_PROCESS_H

#include <mpi.h>

#include "lib/object/mpi.h"

extern const struct dpb_host *mpi_host; /* set by the entry */
extern const struct dpb_library mpi_versions[];

/* Fails with `status` and MPI's text for its error `code`. */
dpb_status mpi_fail(dpb_status status, int code, const char *what);
/* As in struct mpi_library. */
dpb_status mpi_process_open(const struct dpb_comm_args *job);
void mpi_process_close(void);
void mpi_look_at_library(void);

#endif
