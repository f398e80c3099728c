/* guest.S: a boot sector that fills memory with numbers, and then, for ever, checks all of it, adds
 * one to each number and reports the round by a line of hexadecimal digits on the serial port. A
 * wrong number stops it with a line "bad".
 * In: nothing    Out: the serial port
 */
	.code16
	.globl	_start
_start:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	lgdt	gdt_pointer
	movl	%cr0, %eax
	orb	$1, %al
	movl	%eax, %cr0
	ljmpl	$8, $flat

	.code32
flat:
	movw	$16, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
	movl	$0x7000, %esp
	inb	$0x92, %al		/* the A20 line */
	orb	$2, %al
	outb	%al, $0x92
	xorl	%ebp, %ebp		/* the round: a word holds its address and the round */
	movl	$FIRST, %edi
fill:
	movl	%edi, (%edi)
	addl	$4, %edi
	cmpl	$LAST, %edi
	jb	fill
round:
	movl	$FIRST, %edi
check:
	leal	(%edi, %ebp), %eax
	cmpl	%eax, (%edi)
	jne	bad
	incl	(%edi)
	addl	$4, %edi
	cmpl	$LAST, %edi
	jb	check
	incl	%ebp
	movl	%ebp, %ebx
	movl	$8, %ecx
digit:
	roll	$4, %ebx
	movb	%bl, %al
	andb	$15, %al
	addb	$'0', %al
	cmpb	$'9', %al
	jbe	1f
	addb	$('a' - '9' - 1), %al
1:	call	put
	loop	digit
	movb	$'\n', %al
	call	put
	jmp	round
bad:
	movl	$text, %esi
2:	lodsb
	call	put
	testb	%al, %al
	jnz	2b
	hlt
put:
	pushl	%eax
	movw	$0x3fd, %dx
3:	inb	%dx, %al
	testb	$0x20, %al
	jz	3b
	popl	%eax
	movw	$0x3f8, %dx
	outb	%al, %dx
	ret
text:
	.asciz	"bad\n"
	.balign	8
gdt:
	.quad	0, 0x00cf9a000000ffff, 0x00cf92000000ffff
gdt_pointer:
	.word	gdt_pointer - gdt - 1
	.long	gdt
	.org	510
	.word	0xaa55
