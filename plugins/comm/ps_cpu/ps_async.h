/* ps_async.h - the strategy beside ps_cpu in its plugin. */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_ASYNC_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_ASYNC_H

#include "dpbench/plugin.h"

extern const struct dpb_plugin ps_async;

#endif
