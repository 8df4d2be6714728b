/*
 * capture.h - what this process writes to standard error, for a test to read, or for nobody.
 */
#ifndef DPB_TESTS_LIB_CAPTURE_H
#define DPB_TESTS_LIB_CAPTURE_H

enum { CAPTURE_BYTES = 1 << 20 };

/* From now on standard error goes to a file without a name. Not nested; on one thread. */
void capture_begin(void);
/* Standard error is what it was. Returns what was written since, at most CAPTURE_BYTES - 1 bytes;
 * @borrowed until the next call. */
const char *capture_end(void);
/* A fixture for tests that want failures: the log's messages are not written. */
int silence(void **state);

#endif
