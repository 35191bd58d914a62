-- @name string: manifold documents manifold_documents.[order-summary.12]
set lock_timeout 10000;
declare @got int;
exec @got = sp_getapplock @Resource = @name, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 10000;
select @got;

-- and then

-- @name string: manifold_documents.[order-summary.12]
select case when object_id(@name, 'U') is null then 0 else 1 end;

-- and then

create table manifold_documents.[order-summary.12] (
	tenant_id uniqueidentifier not null,
	build bigint not null,
	id_bytes varbinary(512) not null,
	id nvarchar(512) not null,
	version bigint not null,
	document varchar(max) collate Latin1_General_100_BIN2_UTF8,
	[key status] varbinary(1001) not null,
	[key customer.name] varbinary(1001) not null,
	check (document is null or isjson(document) = 1),
	primary key clustered (tenant_id, build, id_bytes)
) with (data_compression = page);

-- and then

alter table manifold_documents.[order-summary.12] set (lock_escalation = disable);

-- and then

if not exists (select * from sys.indexes where object_id = object_id(N'manifold_documents.[order-summary.12]') and name = N'checkpoints')
create index [checkpoints] on manifold_documents.[order-summary.12] (build, tenant_id) include (version) where id_bytes = 0x;
