/* pci.h: nothing; there is no bus. */
#ifndef ANYVERBS_ASM_PCI_H
#define ANYVERBS_ASM_PCI_H

#endif
