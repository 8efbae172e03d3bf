/* SANITIZED: true in a build with ASan or TSan.  These need memory and addresses of their own, and slow a program down
 * so much that tests of many random cases run fewer of them. */
#ifndef SANITIZER_H
#define SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
