/*
 * setup.h - which facts make a machine another one. The others are its state: they change while it
 * stays the same, as the memory of a guest does when its host takes some back. docs/results.md.
 */
#ifndef DPB_STUDY_DOCUMENT_SETUP_H
#define DPB_STUDY_DOCUMENT_SETUP_H

#include <stdbool.h>

/* Of a path into a result: "machine.memory_bytes". */
bool dpb_setup_is_state(const char *path);

#endif
