/*
 * driver.h - what a machine lacks for CUDA, in words. The driver's library is looked for at run
 * time and nothing here is linked to it, nor to any other of CUDA's: plugins load where there is
 * none.
 */
#ifndef DPB_PLUGINS_LIB_CUDA_DRIVER_H
#define DPB_PLUGINS_LIB_CUDA_DRIVER_H

/* Why a plugin that was built against CUDA release `built` (CUDART_VERSION: 13000) cannot run here:
 * no driver, one that is too old, one that does not start, no GPU; for dpb_plugin.missing. NULL: it
 * can. Initialises the driver, for tenths of a second where there are GPUs. To be called by
 * dpb_plugin_entry, once; the text lives as long as the process. */
const char *cuda_driver_missing(int built);

#endif
