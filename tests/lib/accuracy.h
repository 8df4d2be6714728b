/*
 * accuracy.h - LeNet learns Fashion-MNIST, by conf/lenet_shm.ini with another strategy.
 */
#ifndef DPB_TESTS_LIB_ACCURACY_H
#define DPB_TESTS_LIB_ACCURACY_H

/* Fails the test unless the workers reach 89 % of the test set within 3 epochs; skips it where the
 * data or the cpu device are not there. `strategy`: settings, cut at blanks. */
void expect_lenet_learns(const char *strategy);

#endif
