/* plugin.c - see plugin.h. */
#include "lib/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "lib/command.h"
#include "lib/test.h"
#include "world/world.h"

static dpb_status endless_patience(const struct dpb_wait *what, int64_t *begin_ns)
{
    (void)what;
    (void)begin_ns;
    return DPB_OK;
}

const struct dpb_host plugin_host = {
    .struct_size = sizeof plugin_host,
    .abi = DPB_ABI,
    .fail = dpb_fail,
    .warn = dpb_warn,
    .log = dpb_log,
    .now_ns = dpb_now_ns,
    .alloc = dpb_alloc,
    .release = dpb_release,
    .vec = &dpb_vec,
    .note = dpb_world_note,
    .patience = endless_patience,
    .n_machines = dpb_world_machines,
};

const struct dpb_plugin *plugin_load(dpb_plugin_kind kind, const char *file,
                                     const struct dpb_host *host)
{
    return plugin_load_from("plugins", kind, file, host);
}

const struct dpb_plugin *plugin_load_from(const char *directory, dpb_plugin_kind kind,
                                          const char *file, const struct dpb_host *host)
{
    static const char *const kinds[DPB_PLUGIN_KINDS] = {
        [DPB_PLUGIN_MODEL] = "model", [DPB_PLUGIN_DATA] = "data",   [DPB_PLUGIN_DEVICE] = "device",
        [DPB_PLUGIN_COMM] = "comm",   [DPB_PLUGIN_CODEC] = "codec",
    };
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s_%s.so", build_directory(), directory, kinds[kind], file);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        fail_msg("%s", dlerror());
    const struct dpb_plugin *(*entry)(const struct dpb_host *);
    void *symbol = dlsym(object, "dpb_plugin_entry");
    assert_non_null(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    const struct dpb_plugin *first = entry(host);
    assert_non_null(first);
    for (const struct dpb_plugin *plugin = first; plugin; plugin = plugin->next) {
        assert_true(plugin->magic == DPB_PLUGIN_MAGIC);
        assert_int_equal(plugin->kind, kind);
    }
    return first;
}
