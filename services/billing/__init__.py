"""Billing: closed usage becomes invoices."""
