/* cuda_queue.c - see cuda_queue.h. */
#include "lib/cuda_queue.h"

#include "lib/plugin.h"
#include "lib/session.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "world/world.h"

void cuda_queue_open(uint32_t index, struct cuda_queue *opened)
{
    static struct dpb_host host;
    const struct dpb_device_args args = {.threads = 1, .index = index};
    host = plugin_host;
    host.event = &dpb_events;
    opened->host = &host;
    const struct dpb_plugin *plugin =
        on_gpu() ? plugin_load(DPB_PLUGIN_DEVICE, "cuda", &host)
                 : plugin_load_from("tests/cuda/plugins", DPB_PLUGIN_DEVICE, "cuda", &host);
    opened->device_ops = plugin->ops;
    opened->arenas = (struct dpb_device_arenas){.ops = opened->device_ops->queues};
    expect_ok(opened->device_ops->open(NULL, &args, &opened->arenas.device));
    expect_ok(opened->arenas.ops->open(opened->arenas.device, &opened->queue));
}

void cuda_queue_close(const struct cuda_queue *opened)
{
    opened->arenas.ops->close(opened->queue);
    opened->device_ops->close(opened->arenas.device);
}
