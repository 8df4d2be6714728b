/*
 * plugin.h - the entry of every plugin, and the struct that it returns.
 *
 * Every plugin includes this header: copy the struct and the entry from a template (`dpbench new`).
 *
 * A plugin is a shared object KIND_NAME.so (device_cpu.so, comm_shm.so) with one exported function,
 * dpb_plugin_entry. Core loads it with RTLD_NOW | RTLD_LOCAL, never unloads it, and refuses what
 * does not match with a message that names the field and both values. A shared object may hold
 * several plugins of one kind, linked by `next`.
 */
#ifndef DPBENCH_PLUGIN_H
#define DPBENCH_PLUGIN_H

#include "codec.h"
#include "comm.h"
#include "data.h"
#include "device.h"
#include "host.h"
#include "model.h"
#include "option.h"
#include "queue.h"

#define DPB_PLUGIN_MAGIC UINT64_C(0x3147554c50425044) /* "DPBPLUG1" in little endian */
#define DPB_ABI 33 /* rises with every change of these headers that a plugin is built on */

typedef enum dpb_plugin_kind {
    DPB_PLUGIN_MODEL,
    DPB_PLUGIN_DATA,
    DPB_PLUGIN_DEVICE,
    DPB_PLUGIN_COMM,
    DPB_PLUGIN_CODEC,
    DPB_PLUGIN_KINDS
} dpb_plugin_kind;

/* A library that a plugin uses: the version it was built against and the one it runs with. */
struct dpb_library {
    const char *name, *built, *loaded;
};

struct dpb_plugin {
    /* This prefix is frozen: it never changes in any version of the ABI. */
    uint64_t magic;
    uint32_t struct_size;  /* sizeof(struct dpb_plugin) */
    uint32_t abi;          /* DPB_ABI */
    uint32_t kind;         /* dpb_plugin_kind */
    uint32_t ops_size;     /* sizeof of the kind's ops */
    uint64_t capabilities; /* DPB_DEVICE_*, DPB_COMM_* */
    const char *name;      /* [a-z0-9_]+, as in `comm.name = NAME` */
    const char *version, *summary;
    const struct dpb_option *options; /* NULL: none */
    size_t options_size;              /* sizeof of the options struct */
    /* struct dpb_{model,...}_ops of the kind. All hooks but the optional ones are set. */
    const void *ops;
    /* End of the frozen prefix. */
    /* Another plugin of the same kind in this shared object, or NULL. */
    const struct dpb_plugin *next;
    const struct dpb_library *libraries; /* ended by name = NULL; or NULL */
    /* Environment variables that must hold the number of compute threads of a worker before the
     * plugin is loaded (OMP_NUM_THREADS); ended by NULL; or NULL. Core sets them in the workers. */
    const char *const *thread_variables;
    /* Optional. Returns the part that this machine lacks for the plugin to run, and how to get it;
     * NULL: nothing is missing. Core calls it in a child, which has 30 s and ends afterwards: the
     * hook may start a driver, the entry may not. The options are valid all the same: an experiment
     * may be written on another machine than the one that runs it. */
    const char *(*missing)(void);
};

/* The prefix of every plugin struct: DPB_PLUGIN_HEAD(COMM, shm_ops), the kind and its ops. */
#define DPB_PLUGIN_HEAD(KIND, OPS)                                                       \
    .magic = DPB_PLUGIN_MAGIC, .struct_size = sizeof(struct dpb_plugin), .abi = DPB_ABI, \
    .kind = DPB_PLUGIN_##KIND, .ops_size = sizeof(OPS), .ops = &(OPS)

#if defined(__GNUC__)
#define DPB_EXPORT __attribute__((visibility("default")))
#else
#define DPB_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Called once, on one thread, before any hook. Returns NULL after host->fail when the plugin cannot
 * work here. The struct and everything it points to live as long as the process. */
DPB_EXPORT const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host);

#ifdef __cplusplus
}
#endif

#endif
