/*
 * detach.h - a shared object in memory of the process's own. A mapped file that is overwritten in
 * place changes under the process, and ends it by SIGBUS where the file became shorter.
 */
#ifndef DPB_CORE_PLUGIN_DETACH_H
#define DPB_CORE_PLUGIN_DETACH_H

/* Replaces all mappings of the file at `path` (resolved) by copies at the same addresses, before
 * another thread uses them. A part stays mapped if there is no memory for its copy. */
void dpb_detach(const char *path);

#endif
