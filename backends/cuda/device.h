/* A rank's GPU: which one, its context, and whether what a call names is there. */
#ifndef DEVICE_H
#define DEVICE_H

#include "driver.h"

struct device {
    const tutti_host *host;
    const char *who;  /* the plug-in, for sentences */
    const char *what; /* versions, likewise; "" where there is nothing to say */
    int index;
    CUdevice handle;
    CUcontext context; /* NULL until it is open */
};

/* Which one it is: the one that the rank named, else the one of its place on the host.  No context yet. */
int device_choose(struct device *device, const tutti_group_info *info, const tutti_host *host, const char *who);

/* Holds the device's primary context. */
int device_open(struct device *device);
void device_close(struct device *device);

/* Makes the context the thread's; what it answers goes to leave, which makes it as it was. */
bool device_enter(const struct device *device);
void device_leave(bool entered);

/* Between the two the thread may ask events and allocate although a graph is being captured somewhere: without them
 * that would end the capture. */
CUstreamCaptureMode device_relax(void);
void device_unrelax(CUstreamCaptureMode mode);

/* What a capture does to a stream.  Barred: it is the legacy default stream, while one that waits for it by itself is
 * being captured; whatever is put into it then fails, and ends the capture. */
enum device_capture { DEVICE_NO_CAPTURE, DEVICE_CAPTURED, DEVICE_BARRED };

enum device_capture device_capture(CUstream stream);

/* Whether op's memory and stream are on the device; the sentence says which is not.  group: its name. */
int device_check(const struct device *device, const tutti_op *op, CUstream stream, const char *group);

/* A driver's error as ours. */
int device_failed(const struct device *device, const char *doing, CUresult result);

#endif
