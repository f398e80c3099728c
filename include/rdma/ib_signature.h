/* ib_signature.h: protection of data by signatures (T10-PI), in the words of Linux 6.1. Reached
 * through ib_linux61.h. No device here has it: the words let code compile that asks first
 * (ib_device.attrs.kernel_cap_flags, sig_prot_cap), and every call refuses with -EOPNOTSUPP.
 */
#ifndef IB_SIGNATURE_H
#define IB_SIGNATURE_H

#include <anyverbs/kernel.h>

/* ib_device_attrs.sig_prot_cap */
enum ib_signature_prot_cap {
	IB_PROT_T10DIF_TYPE_1 = 1 << 0,
	IB_PROT_T10DIF_TYPE_2 = 1 << 1,
	IB_PROT_T10DIF_TYPE_3 = 1 << 2,
};

/* ib_device_attrs.sig_guard_cap */
enum ib_signature_guard_cap {
	IB_GUARD_T10DIF_CRC = 1 << 0,
	IB_GUARD_T10DIF_CSUM = 1 << 1,
};

enum ib_signature_type { IB_SIG_TYPE_NONE, IB_SIG_TYPE_T10_DIF };

enum ib_t10_dif_bg_type { IB_T10DIF_CRC, IB_T10DIF_CSUM };

struct ib_t10_dif_domain {
	enum ib_t10_dif_bg_type bg_type;
	u16 pi_interval; /* bytes of data for each signature */
	u16 bg;		 /* the guard's seed */
	u16 app_tag;
	u32 ref_tag;
	bool ref_remap;	 /* the reference tag counts up */
	bool app_escape; /* an application tag of all ones is not checked ... */
	bool ref_escape; /* ... if the reference tag is, too */
	u16 apptag_check_mask;
};

struct ib_sig_domain {
	enum ib_signature_type sig_type;
	union {
		struct ib_t10_dif_domain dif;
	} sig;
};

struct ib_sig_attrs {
	u8 check_mask; /* IB_SIG_CHECK_*, a bit for each byte of a signature */
	struct ib_sig_domain mem;
	struct ib_sig_domain wire;
	int meta_length; /* bytes of all signatures */
};

enum {
	IB_SIG_CHECK_REFTAG = 0x0f,
	IB_SIG_CHECK_APPTAG = 0x30,
	IB_SIG_CHECK_GUARD = 0xc0,
};

enum ib_sig_err_type { IB_SIG_BAD_GUARD, IB_SIG_BAD_REFTAG, IB_SIG_BAD_APPTAG };

struct ib_sig_err {
	enum ib_sig_err_type err_type;
	u32 expected;
	u32 actual;
	u64 sig_err_offset; /* bytes */
	u32 key;
};

/* Of ib_check_mr_status, which fills none. */
struct ib_mr_status {
	u32 fail_status; /* IB_MR_CHECK_* that failed */
	struct ib_sig_err sig_err;
};

#endif
